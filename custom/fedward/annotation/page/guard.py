"""Access to the page: for holders of its address, from the page itself, by a safe host name."""

import hmac
import ipaddress
import socket
from hashlib import sha256
from urllib.parse import urlsplit

from flask import Flask, Response, abort, request

ADMIT = "fedward.admit"
"""Key of WSGI's environment: the function to call once a request has shown the token."""
_SHELL = frozenset({"start", "icon"})
"""Endpoints that the cookie alone opens: the page without an image, an id or an answer."""
_LOCAL_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
"""Headers of every response."""


def is_loopback(host: str) -> bool:
    """Return whether only this machine can reach a host that a server binds to."""
    return host in _LOCAL_NAMES or (_is_address(host) and ipaddress.ip_address(host).is_loopback)


class Guard:
    """Checks every request before the application, and sets the security headers of responses.

    The token comes once, in the address. After that a request needs two values that are derived
    from it: a cookie, which no script can read, and a secret, which the page received with the
    token and keeps for its own origin. The cookie alone would not do: browsers send cookies to
    every port of a machine, so another account's server there can learn the cookie, but not the
    secret. There are two secrets. The one for images is in their addresses, and opens nothing else.

    A request must name the machine by a name that no foreign DNS can point here (DNS rebinding):
    ``localhost``, an IP address, the host that was bound or the machine's own name.

    Args:
        token: at least 128 random bits, as text.
        host: the host that the server binds to.
    """

    def __init__(self, token: str, host: str) -> None:
        self._token = token
        self._public = not is_loopback(host)
        self._host_names = {*_LOCAL_NAMES, host.lower()}
        if self._public:
            self._host_names.add(socket.gethostname().lower())
        # Browsers share cookies between the ports of a host, so two pages on one machine need
        # different names for theirs.
        self._cookie = f"fedward_{sha256(token.encode()).hexdigest()[:12]}"
        self._cookie_value = self._made_for(b"cookie")
        self.form_secret = self._made_for(b"form")
        self.image_secret = self._made_for(b"image")

    def brings_token(self) -> bool:
        """Return whether the current request has the token in its address."""
        return _same(request.args.get("token", ""), self._token)

    def watch(self, app: Flask) -> None:
        """Put the guard before an application."""
        app.before_request(self._check)
        app.after_request(self._finish)

    def _check(self) -> None:
        if not self._may_name(request.headers.get("Host", "")):
            abort(421)
        if request.endpoint == "static":
            return
        if not (self.brings_token() or self._has_cookie()):
            abort(403)
        is_shell = request.endpoint in _SHELL and request.method in ("GET", "HEAD")
        if not is_shell and not self._from_page():
            abort(403)
        request.environ.get(ADMIT, _nobody)()

    def _may_name(self, header: str) -> bool:
        try:
            name = urlsplit(f"//{header}").hostname or ""
        except ValueError:
            return False
        return name in self._host_names or (self._public and _is_address(name))

    def _made_for(self, purpose: bytes) -> str:
        return hmac.new(self._token.encode(), purpose, sha256).hexdigest()

    def _has_cookie(self) -> bool:
        return _same(request.cookies.get(self._cookie, ""), self._cookie_value)

    def _from_page(self) -> bool:
        """Return whether the current request has a secret, and no origin but the page's."""
        origin = request.headers.get("Origin")
        if origin is not None and _host_of(origin) != request.headers.get("Host"):
            return False
        if request.endpoint == "image" and _same(request.args.get("secret", ""), self.image_secret):
            return True
        return _same(request.headers.get("X-Form-Secret", ""), self.form_secret)

    def _finish(self, response: Response) -> Response:
        response.headers.update(HEADERS)
        if response.status_code < 400 and self.brings_token():
            response.set_cookie(self._cookie, self._cookie_value, httponly=True, samesite="Strict")
        return response


def _same(given: str, secret: str) -> bool:
    return hmac.compare_digest(given.encode(), secret.encode())


def _host_of(origin: str) -> str:
    """Return the host and port of an origin; empty for what is no address."""
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return ""


def _nobody() -> None:
    """Do nothing, where the server does not count connections."""


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
