"""The page's few addresses: itself, what waits, one image, an answer, and taking one back."""

import logging
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Literal, TypeAlias

from flask import Flask, Response, abort, jsonify, render_template, request
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    model_validator,
)
from pydantic_core import PydanticCustomError
from werkzeug.exceptions import HTTPException

from fedward.annotation.desk import Desk, Message, Stale, View
from fedward.annotation.page.guard import Guard
from fedward.annotation.pictures import LARGEST, Pictures
from fedward.annotation.records import NO_FORMULA, is_formula, plain_name
from fedward.errors import DataError
from fedward.labels import NO_FINDING

KEYS = "1234567890abdeghijkmopqrtvyz"
"""Keys of the classes in turn; c, f, l, n, s, u, w and x mean something else."""
_MOST = 24
"""Images of one group that are shown beside the one in question."""
_REFUSALS = {
    403: "This page opens only with its full address, as “fedward annotate” wrote it. "
    "It may have been started anew since: then it has a new address.",
    410: "A new job asks for another kind of answer than this page takes, so the page is closed. "
    "Answers before that are saved. Please tell your IT: “fedward annotate” has to be started anew.",
    421: "This page does not answer to that name of the machine. Use the address as “fedward annotate” wrote it.",
    500: "Something went wrong here. Please tell your IT: the window of “fedward annotate” says what.",
}
_FOREIGN = "That is not an image or class of this page. Please reload it."
_FORMULA = "formula"
"""Pydantic's type of the error of a name that is one."""
_log = logging.getLogger(__name__)

Answer: TypeAlias = Response | tuple[Response, int]


def _plain_name(name: str) -> str:
    name = plain_name(name)
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


class _Drawn(BaseModel):
    """How an image is to be drawn."""

    model_config = ConfigDict(extra="ignore", allow_inf_nan=False)
    longest: int = Field(LARGEST, ge=16, le=LARGEST)
    centre: float | None = None
    width: float | None = Field(None, gt=0)

    @property
    def window(self) -> tuple[float, float] | None:
        """Centre and width, if both are given."""
        return None if self.centre is None or self.width is None else (self.centre, self.width)


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
        app.before_request(self.require_same_kind)
        app.get("/")(self.start)
        app.get("/favicon.ico")(self.icon)
        app.get("/state")(self.state)
        app.get("/given")(self.given)
        app.get("/image")(self.image)
        app.get("/levels")(self.levels)
        app.post("/answer")(self.answer)
        app.post("/undo")(self.undo)
        app.errorhandler(Stale)(self.stale)
        app.errorhandler(HTTPException)(self.refuse)
        app.errorhandler(ValidationError)(_not_understood)
        app.errorhandler(DataError)(_not_stored)
        return app

    def require_same_kind(self) -> None:
        """Refuse all but the look of the page once a newer job asks for another kind of answer."""
        if request.endpoint != "static" and self.desk.asks_otherwise():
            abort(410)

    def start(self, message: str = "") -> str:
        """Return the page, or a page with a message alone."""
        return render_template(
            "page.html",
            site=self.pictures.site,
            choices=(choices := self._choices()),
            defined=any(choice["definition"] for choice in choices),
            rules=self.desk.rules,
            no_finding=NO_FINDING,
            message=message,
            guard=None if message or not self.guard.brings_token() else self.guard,
        )

    def icon(self) -> Response:
        """Return nothing: browsers ask for an icon of their own accord."""
        return Response(status=204)

    def state(self) -> Response:
        """Return what waits for a reader."""
        again = request.args.get("again") == "true"
        return self._view(_reader(), request.args.get("showing", ""), again=again)

    def given(self) -> Response:
        """Return what a reader has answered."""
        return jsonify([asdict(each) for each in self.desk.given(_reader())])

    def image(self) -> Answer:
        """Return one of the site's images as PNG."""
        how = _Drawn.model_validate(request.args.to_dict())
        return self._of_image(
            lambda name: Response(
                self.pictures.png(name, how.longest, how.window), mimetype="image/png"
            )
        )

    def levels(self) -> Answer:
        """Return the range of values of a grey image, and the window it is shown with; null for
        colour.
        """
        return self._of_image(
            lambda name: jsonify((found := self.pictures.levels(name)) and asdict(found))
        )

    def _of_image(self, what: Callable[[str], Response]) -> Answer:
        sample_id = request.args.get("id", "")
        if sample_id not in self.pictures.ids or not self.pictures.belongs(
            sample_id, self.desk.asked()
        ):
            return _sorry("There is no such image here.", 404)
        try:
            return what(sample_id)
        except DataError as error:
            _log.error("%s", error)
            return _sorry("This image cannot be shown.", 404)

    def answer(self) -> Answer:
        """Store an answer, and return what waits then."""
        body = _Answer.model_validate_json(request.get_data())
        if body.sample_id not in self.pictures.ids or body.kind not in (
            "label",
            "skip",
            *self.desk.rules.no_class,
        ):
            return _sorry(_FOREIGN, 400)
        if not self.desk.asked().intersection(self.desk.rules.together(body.sample_id)):
            raise Stale(body.annotator, "Nobody has asked about this image. Nothing was changed.")
        said = body.model_dump()
        if body.label is not None:
            try:
                said["label"] = self.desk.rules.label(
                    body.label, {name: name for name in self.pictures.classes}
                )
            except ValueError:
                return _sorry(_FOREIGN, 400)
        self.desk.answer(Message(**said))
        return self._view(body.annotator)

    def undo(self) -> Answer:
        """Take the newest answer back, and return its image as the one to show."""
        body = _Undo.model_validate_json(request.get_data())
        return self._view(body.annotator, self.desk.undo(body.annotator, body.answer, body.key))

    def stale(self, error: Stale) -> Answer:
        """Return why nothing was changed, and what waits now."""
        return jsonify(
            {"message": str(error), "view": self._seen(self.desk.view(error.annotator))}
        ), 409

    def refuse(self, error: HTTPException) -> tuple[str | Response, int]:
        """Return a sentence instead of the page or its data."""
        code = error.code or 500
        text = _REFUSALS.get(code, "There is nothing here. Open the page by its full address.")
        return (self.start(text), code) if request.path == "/" else _sorry(text, code)

    def _view(self, annotator: str, showing: str = "", *, again: bool = False) -> Response:
        return jsonify(self._seen(self.desk.view(annotator, showing, again=again)))

    def _seen(self, view: View) -> dict[str, Any]:
        """Return a view with what the site has of its image: chosen cells of the CSV, and the
        images of its group.
        """
        if view.image is None:
            return asdict(view) | {"facts": [], "group": [], "more": 0, "slice": None}
        name = view.image.sample_id
        group = list(dict.fromkeys([name, *view.together, *self.pictures.group(name)]))
        more = max(0, len(group) - _MOST)
        place = self.pictures.slice(name)
        shown = {"facts": self.pictures.facts(name), "group": group[:_MOST], "more": more}
        return asdict(view) | shown | {"slice": asdict(place) if place else None}

    def _choices(self) -> list[dict[str, str]]:
        words = self.pictures.words
        classes = self.pictures.classes
        keys = [*KEYS, *[""] * len(classes)]
        return [
            {
                "name": name,
                "key": key,
                "title": words[name].title or name,
                "definition": words[name].definition,
            }
            for name, key in zip(classes, keys, strict=False)
        ]


def _reader() -> str:
    return _NAME.validate_python(request.args.get("annotator", ""))


def _not_understood(error: ValidationError) -> Answer:
    if _FORMULA in [each["type"] for each in error.errors()]:
        return _sorry(f"The page needs {NO_FORMULA}. Change the name, above on the right.", 400)
    return _sorry("The page sent something that was not understood. Please reload it.", 400)


def _not_stored(error: DataError) -> Answer:
    _log.error("%s", error)
    return _sorry(
        "The queue cannot be used. Please tell your IT: the window of “fedward annotate” says why.",
        503,
    )


def _sorry(text: str, code: int) -> tuple[Response, int]:
    return jsonify({"message": text}), code
