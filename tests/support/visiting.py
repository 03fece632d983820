"""A browser that has opened the page by its full address, as far as the server can see one."""

from flask.testing import FlaskClient

from fedward.annotation.page.app import Page


def come_in(page: Page, token: str) -> FlaskClient:
    """Return a client that has the page's cookie, and sends its secret as the page does."""
    client = page.app().test_client()
    assert client.get(f"/?token={token}").status_code == 200
    client.environ_base["HTTP_X_FORM_SECRET"] = page.guard.form_secret
    return client
