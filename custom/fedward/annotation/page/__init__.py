"""The local page on which clinicians answer: a Flask application, its guard and its server."""
