"""Who may talk to the page: the holder of the address, from this page, by a name that cannot be
rebound.
"""

import hmac
import ipaddress
import socket
from hashlib import sha256
from urllib.parse import urlsplit

from flask import Flask, Response, abort, request

ADMIT = "fedward.admit"
"""In WSGI's environment: what to call once a request has shown the token."""
_SHELL = frozenset({"start", "icon"})
"""What the cookie alone opens: the page without an image, an id or an answer."""
_LOCAL_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


def is_loopback(host: str) -> bool:
    """Return whether a host to bind to is this machine's alone."""
    return host in _LOCAL_NAMES or (_is_address(host) and ipaddress.ip_address(host).is_loopback)


class Guard:
    """Checks every request before the application sees it, and puts the security headers on every
    answer.

    The token comes once, in the address. From then on a request needs two things that are made of
    it. A cookie, which no script can read. And a secret, which the page got with the token and
    keeps for its own origin: browsers send cookies to every port of a machine, so another account's
    server there can learn the cookie, and the secret it cannot. Of the two secrets one is for
    images, whose addresses hold it, and opens nothing else. A request must name the machine by a
    name that no foreign DNS can point here (DNS rebinding): ``localhost``, an IP address, the host
    that was bound or the machine's own name.

    Args:
        token: at least 128 random bits, as text.
        host: what the server binds to.
    """

    def __init__(self, token: str, host: str) -> None:
        self._token = token
        self._public = not is_loopback(host)
        self._names = (
            _LOCAL_NAMES
            | {host.lower()}
            | ({socket.gethostname().lower()} if self._public else set())
        )
        # Browsers share cookies between the ports of a host: two pages on one machine need names of
        # their own.
        self._cookie = f"fedward_{sha256(token.encode()).hexdigest()[:12]}"
        self._cookie_value = self._made_for(b"cookie")
        self.form_secret = self._made_for(b"form")
        self.image_secret = self._made_for(b"image")

    def brings_token(self) -> bool:
        """Return whether the present request has the token in its address."""
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
        if not (
            (request.endpoint in _SHELL and request.method in ("GET", "HEAD")) or self._from_page()
        ):
            abort(403)
        request.environ.get(ADMIT, _nobody)()

    def _may_name(self, header: str) -> bool:
        try:
            name = urlsplit(f"//{header}").hostname or ""
        except ValueError:
            return False
        return name in self._names or (self._public and _is_address(name))

    def _made_for(self, purpose: bytes) -> str:
        return hmac.new(self._token.encode(), purpose, sha256).hexdigest()

    def _has_cookie(self) -> bool:
        return _same(request.cookies.get(self._cookie, ""), self._cookie_value)

    def _from_page(self) -> bool:
        origin = request.headers.get("Origin")
        own = origin is None or urlsplit(origin).netloc == request.headers.get("Host")
        if request.endpoint == "image" and _same(request.args.get("secret", ""), self.image_secret):
            return own
        return own and _same(request.headers.get("X-Form-Secret", ""), self.form_secret)

    def _finish(self, response: Response) -> Response:
        response.headers.update(HEADERS)
        if response.status_code < 400 and self.brings_token():
            response.set_cookie(self._cookie, self._cookie_value, httponly=True, samesite="Strict")
        return response


def _same(given: str, secret: str) -> bool:
    return hmac.compare_digest(given.encode(), secret.encode())


def _nobody() -> None:
    """Do nothing: no server wants to know."""


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
