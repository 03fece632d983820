"""The contexts of homomorphic encryption in a startup kit, with FLARE's check of signatures."""

from nvflare.apis.fl_context import FLContext
from nvflare.fuel.sec.security_content_service import SecurityContentService
from nvflare.lighter.constants import ProvFileName

from fedward.errors import ConfigError

SITE = ProvFileName.CLIENT_CONTEXT_TENSEAL
"""File with a site's context, which can encrypt and decrypt."""

SERVER = ProvFileName.SERVER_CONTEXT_TENSEAL
"""File with the server's context, which can add ciphertexts but not decrypt them."""


def context_of(kit_file: str, fl_ctx: FLContext) -> bytes:
    """Return a context from the startup folder of this server or site.

    Raises:
        ConfigError: the package tenseal or the file is missing, or the file's signature is not the
            authority's. The simulator neither signs nor checks files.
    """
    try:
        from nvflare.app_opt.he.homomorphic_encrypt import load_tenseal_context_from_workspace

        load_tenseal_context_from_workspace(kit_file, fl_ctx)
    except ImportError as error:
        raise ConfigError(
            "secure_aggregation",
            expected="the package tenseal",
            found=str(error),
            remedy="Install it: pip install 'fedward[he]'.",
        ) from error
    except (RuntimeError, TypeError, ValueError) as error:
        raise ConfigError(
            "secure_aggregation",
            expected=f"a signed {kit_file} in startup/",
            found=str(error),
            remedy="Provision with HEBuilder; see docs/encryption.md.",
        ) from error
    content, _ = SecurityContentService.load_content(kit_file)
    return bytes(content)
