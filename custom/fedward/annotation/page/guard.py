"""Who may talk to the page: the holder of the address, from this page, by a name that cannot be rebound."""

import hmac
import ipaddress
import socket
from hashlib import sha256
from urllib.parse import urlsplit

from flask import Flask, Response, abort, request

_LOCAL_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
_HEADERS = {
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
    """Checks every request before the application sees it, and puts the security headers on every answer.

    The token comes once, in the address; a cookie keeps it from then on, which no script can read and no other site
    can make the browser send. Changes need a second secret, which only the page's own content holds. A request must
    name the machine by a name that no foreign DNS can point here (DNS rebinding): ``localhost``, an IP address, the
    host that was bound or the machine's own name.

    Args:
        token: at least 128 random bits, as text.
        host: what the server binds to.
    """

    def __init__(self, token: str, host: str) -> None:
        self._token = token
        self._public = not is_loopback(host)
        self._names = _LOCAL_NAMES | {host.lower()} | ({socket.gethostname().lower()} if self._public else set())
        # Browsers share cookies between the ports of a host: two pages on one machine need names of their own.
        self._cookie = f"fedward_{sha256(token.encode()).hexdigest()[:12]}"
        self.form_secret = hmac.new(token.encode(), b"form", sha256).hexdigest()

    def watch(self, app: Flask) -> None:
        """Put the guard before an application."""
        app.before_request(self._check)
        app.after_request(self._finish)

    def _check(self) -> None:
        if not self._may_name(request.headers.get("Host", "")):
            abort(421)
        if request.endpoint != "static" and not (self._in_address() or self._in_cookie()):
            abort(403)
        if request.method not in ("GET", "HEAD", "OPTIONS") and not self._from_page():
            abort(403)

    def _may_name(self, header: str) -> bool:
        try:
            name = urlsplit(f"//{header}").hostname or ""
        except ValueError:
            return False
        return name in self._names or (self._public and _is_address(name))

    def _in_address(self) -> bool:
        return _same(request.args.get("token", ""), self._token)

    def _in_cookie(self) -> bool:
        return _same(request.cookies.get(self._cookie, ""), self._token)

    def _from_page(self) -> bool:
        origin = request.headers.get("Origin")
        own = origin is None or urlsplit(origin).netloc == request.headers.get("Host")
        return own and _same(request.headers.get("X-Form-Secret", ""), self.form_secret)

    def _finish(self, response: Response) -> Response:
        response.headers.update(_HEADERS)
        if response.status_code < 400 and "token" in request.args and self._in_address():
            response.set_cookie(self._cookie, self._token, httponly=True, samesite="Strict")
        return response


def _same(given: str, secret: str) -> bool:
    return hmac.compare_digest(given.encode(), secret.encode())


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
