"""The local page on which a clinician answers: a small Flask application, its guard and its server."""
