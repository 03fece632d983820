"""The contexts of homomorphic encryption in a startup kit, checked as FLARE checks what it has
signed.
"""

from nvflare.apis.fl_context import FLContext
from nvflare.fuel.sec.security_content_service import SecurityContentService
from nvflare.lighter.constants import ProvFileName

from fedward.errors import ConfigError

SITE = ProvFileName.CLIENT_CONTEXT_TENSEAL
SERVER = ProvFileName.SERVER_CONTEXT_TENSEAL


def context_of(kit_file: str, fl_ctx: FLContext) -> bytes:
    """Return a context from the startup folder of this server or site.

    Raises:
        ConfigError: the package tenseal or the file is missing, or the file's signature is not the
            authority's; the simulator signs nothing and checks none.
    """
    try:
        from nvflare.app_opt.he.homomorphic_encrypt import load_tenseal_context_from_workspace

        load_tenseal_context_from_workspace(kit_file, fl_ctx)
    except ImportError as error:
        expected = "the package tenseal"
        remedy = "Install it: pip install 'fedward[he]'."
        raise ConfigError(
            "secure_aggregation", expected=expected, found=str(error), remedy=remedy
        ) from error
    except (RuntimeError, TypeError, ValueError) as error:
        expected = f"a signed {kit_file} in startup/"
        remedy = "Provision with HEBuilder; see docs/privacy.md."
        raise ConfigError(
            "secure_aggregation", expected=expected, found=str(error), remedy=remedy
        ) from error
    content, _ = SecurityContentService.load_content(kit_file)
    return bytes(content)
