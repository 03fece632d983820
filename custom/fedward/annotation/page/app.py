"""The page's few addresses: itself, what waits, one image, an answer, and taking one back."""

import logging
import unicodedata
from dataclasses import asdict, dataclass
from itertools import zip_longest
from typing import Annotated, Literal, TypeAlias

from flask import Flask, Response, jsonify, render_template, request
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, model_validator
from pydantic_core import PydanticCustomError
from werkzeug.exceptions import HTTPException

from fedward.annotation.desk import Desk, Message, Stale
from fedward.annotation.page.guard import Guard
from fedward.annotation.pictures import Pictures
from fedward.annotation.records import NO_FORMULA, is_formula
from fedward.errors import DataError

KEYS = "1234567890abdeghijklmnopqrtvwxyz"
"""Keys of the classes in turn; c, f, s and u mean cannot tell, fit, skip and undo."""
_REFUSALS = {
    403: "This page opens only with its full address, as “fedward annotate” wrote it. "
    "It may have been started anew since: then it has a new address.",
    421: "This page does not answer to that name of the machine. Use the address as “fedward annotate” wrote it.",
    500: "Something went wrong here. Please tell your IT: the window of “fedward annotate” says what.",
}
_FORMULA = "formula"
"""Pydantic's type of the error of a name that is one."""
_log = logging.getLogger(__name__)

Answer: TypeAlias = Response | tuple[Response, int]


def _plain_name(name: str) -> str:
    name = " ".join(unicodedata.normalize("NFC", name).split())
    if not 1 <= len(name) <= 80 or not name.isprintable():
        raise ValueError("a name of 1 to 80 letters")
    if is_formula(name):
        raise PydanticCustomError(_FORMULA, NO_FORMULA)
    return name


Name = Annotated[str, AfterValidator(_plain_name)]
Key = Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
_NAME: TypeAdapter[str] = TypeAdapter(Name)


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)
    annotator: Name
    key: Key


class _Answer(_Body):
    sample_id: str
    kind: Literal["label", "cannot tell", "unusable", "none of these", "skip"]
    label: str | None
    seen: int
    seconds: Annotated[float, Field(ge=0, le=1e6)] | None = None

    @model_validator(mode="after")
    def _label_if_label(self) -> "_Answer":
        if (self.kind == "label") != (self.label is not None):
            raise ValueError("a label with the kind 'label', and with no other")
        return self


class _Undo(_Body):
    answer: int


@dataclass(frozen=True)
class Page:
    """The page of one site, as Flask serves it."""

    desk: Desk
    pictures: Pictures
    guard: Guard

    def app(self) -> Flask:
        """Return the application."""
        app = Flask(__name__, template_folder=".", static_folder="static")
        app.config["MAX_CONTENT_LENGTH"] = 16 * 1024
        self.guard.watch(app)
        app.get("/")(self.start)
        app.get("/favicon.ico")(self.icon)
        app.get("/state")(self.state)
        app.get("/image")(self.image)
        app.post("/answer")(self.answer)
        app.post("/undo")(self.undo)
        app.errorhandler(Stale)(self.stale)
        app.errorhandler(HTTPException)(self.refuse)
        app.errorhandler(ValidationError)(_not_understood)
        app.errorhandler(DataError)(_not_stored)
        return app

    def start(self, message: str = "") -> str:
        """Return the page, or a page with a message alone."""
        return render_template(
            "page.html",
            site=self.pictures.site,
            choices=list(zip_longest(self.pictures.classes, KEYS[: len(self.pictures.classes)], fillvalue="")),
            readers=self.desk.rules.readers,
            message=message,
            form_secret="" if message else self.guard.form_secret,
        )

    def icon(self) -> Response:
        """Return nothing: browsers ask for an icon of their own accord."""
        return Response(status=204)

    def state(self) -> Response:
        """Return what waits for a reader."""
        return self._view(_NAME.validate_python(request.args.get("annotator", "")), request.args.get("showing", ""))

    def image(self) -> Answer:
        """Return one of the site's images as PNG."""
        sample_id = request.args.get("id", "")
        if sample_id not in self.pictures.ids:
            return _sorry("There is no such image here.", 404)
        try:
            return Response(self.pictures.png(sample_id), mimetype="image/png")
        except DataError as error:
            _log.error("%s", error)
            return _sorry("This image cannot be shown.", 404)

    def answer(self) -> Answer:
        """Store an answer, and return what waits then."""
        body = _Answer.model_validate_json(request.get_data())
        if body.sample_id not in self.pictures.ids or body.label not in (None, *self.pictures.classes):
            return _sorry("That is not an image or class of this page. Please reload it.", 400)
        self.desk.answer(Message(**body.model_dump()))
        return self._view(body.annotator)

    def undo(self) -> Answer:
        """Take the newest answer back, and return its image as the one to show."""
        body = _Undo.model_validate_json(request.get_data())
        return self._view(body.annotator, self.desk.undo(body.annotator, body.answer, body.key))

    def stale(self, error: Stale) -> Answer:
        """Return why nothing was changed, and what waits now."""
        return jsonify({"message": str(error), "view": asdict(self.desk.view(error.annotator))}), 409

    def refuse(self, error: HTTPException) -> tuple[str | Response, int]:
        """Return a sentence instead of the page or its data."""
        code = error.code or 500
        text = _REFUSALS.get(code, "There is nothing here. Open the page by its full address.")
        return (self.start(text), code) if request.path == "/" else _sorry(text, code)

    def _view(self, annotator: str, showing: str = "") -> Response:
        return jsonify(asdict(self.desk.view(annotator, showing)))


def _not_understood(error: ValidationError) -> Answer:
    if _FORMULA in [each["type"] for each in error.errors()]:
        return _sorry(f"The page needs {NO_FORMULA}. Change the name, above on the right.", 400)
    return _sorry("The page sent something that was not understood. Please reload it.", 400)


def _not_stored(error: DataError) -> Answer:
    _log.error("%s", error)
    return _sorry("The queue cannot be used. Please tell your IT: the window of “fedward annotate” says why.", 503)


def _sorry(text: str, code: int) -> tuple[Response, int]:
    return jsonify({"message": text}), code
