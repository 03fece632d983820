"""The addresses of the page: itself, a reader's view, an image, an answer, and taking one back."""

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

from fedward.annotation.desk import Desk
from fedward.annotation.page.guard import Guard
from fedward.annotation.page_content import SentAnswer, Stale, View
from fedward.annotation.pictures import LARGEST, Pictures
from fedward.annotation.records import (
    LONGEST_COMMENT,
    NO_FORMULA,
    Remark,
    plain_comment,
    plain_name,
)
from fedward.errors import DataError
from fedward.labels import NO_FINDING
from fedward.spreadsheet import is_formula

KEYS = "1234567890aghijkmoprtvyz"
"""Keys of the classes, in their order; the other letters have other meanings."""
_LARGEST_GROUP = 24
"""The most images of one group that are shown beside the one in question."""
_REFUSALS = {
    403: (
        "This page opens only with its full address, as “fedward annotate” wrote it. "
        "If it was restarted, it has a new address."
    ),
    410: (
        "A new job asks for another kind of answer than this page takes, so the page is closed. "
        "Answers before that are saved. "
        "Please tell your IT: “fedward annotate” has to be started again."
    ),
    421: (
        "This page does not answer to that name of the machine. "
        "Use the address as “fedward annotate” wrote it."
    ),
    500: (
        "Something went wrong here. "
        "Please tell your IT: the terminal running “fedward annotate” shows the cause."
    ),
}
"""Status of a response -> its sentence for the reader."""
_FOREIGN = "That is not an image or class of this page. Please reload it."
_FORMULA = "formula"
"""Pydantic's type of the error for a name that a spreadsheet may take for a formula."""
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


class _Remark(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)
    unsure: bool = False
    discuss: bool = False
    comment: Annotated[str, Field(max_length=LONGEST_COMMENT), AfterValidator(plain_comment)] = ""


class _Answer(_Body):
    sample_id: str
    kind: Literal["label", "cannot tell", "unusable", "none of these", "skip"]
    label: str | None
    seen: int
    seconds: Annotated[float, Field(ge=0, le=1e6)] | None = None
    remark: _Remark = _Remark()
    again: bool = False

    @model_validator(mode="after")
    def _label_if_label(self) -> "_Answer":
        if (self.kind == "label") != (self.label is not None):
            raise ValueError("a label with the kind 'label', and with no other")
        return self


class _Drawn(BaseModel):
    """The size and the window in which an image is to be drawn."""

    model_config = ConfigDict(extra="ignore", allow_inf_nan=False)
    wide: int = Field(LARGEST, ge=16, le=LARGEST)
    high: int = Field(LARGEST, ge=16, le=LARGEST)
    centre: float | None = None
    width: float | None = Field(None, gt=0)

    @property
    def window(self) -> tuple[float, float] | None:
        """The centre and the width; None unless both are given."""
        if self.centre is None or self.width is None:
            return None
        return self.centre, self.width


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
        app.get("/examples")(self.examples)
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
        """Refuse every request once a newer job asks for another kind of answer.

        Static files, such as the style sheet of the page with the refusal, are still served.
        """
        if request.endpoint != "static" and self.desk.is_closed():
            abort(410)

    def start(self, message: str = "") -> str:
        """Return the page; with a message, a page that shows nothing else."""
        choices = self._choices()
        rules = self.desk.rules
        gives_secrets = not message and self.guard.brings_token()
        return render_template(
            "page.html",
            site=self.pictures.site,
            choices=choices,
            defined=any(choice["definition"] for choice in choices),
            examples=bool(self.pictures.examples),
            rules=rules,
            # With checks, the number of decided questions would not move after an answer to one.
            counts_own=rules.readers > 1 or rules.has_checks,
            no_finding=NO_FINDING,
            message=message,
            guard=self.guard if gives_secrets else None,
        )

    def icon(self) -> Response:
        """Return an empty response, because browsers always ask for an icon."""
        return Response(status=204)

    def state(self) -> Response:
        """Return the view of a reader: the image to answer, and the numbers beside it."""
        again = request.args.get("again") == "true"
        return self._view(_reader(), request.args.get("showing", ""), again=again)

    def given(self) -> Response:
        """Return the answers that a reader has given."""
        return jsonify([asdict(answer) for answer in self.desk.given(_reader())])

    def examples(self) -> Response:
        """Return the ids of the examples of each class."""
        return jsonify(self.pictures.examples_beside(self.desk.asked()))

    def image(self) -> Answer:
        """Return one of the site's images as PNG."""
        drawn = _Drawn.model_validate(request.args.to_dict())

        def picture(sample_id: str) -> Response:
            png = self.pictures.png(sample_id, (drawn.wide, drawn.high), drawn.window)
            return Response(png, mimetype="image/png")

        return self._of_image(picture)

    def levels(self) -> Answer:
        """Return the range of a grey image and its first window; null for colour."""

        def range_and_window(sample_id: str) -> Response:
            levels = self.pictures.levels(sample_id)
            return jsonify(None if levels is None else asdict(levels))

        return self._of_image(range_and_window)

    def _of_image(self, respond: Callable[[str], Response]) -> Answer:
        """Return a response about the image that the request names, if it may be shown."""
        sample_id = request.args.get("id", "")
        asked = self.desk.asked()
        is_example = any(sample_id in ids for ids in self.pictures.examples.values())
        is_shown = is_example or self.pictures.shares_group(sample_id, asked)
        if sample_id not in self.pictures.ids or not is_shown:
            return _sorry("There is no such image here.", 404)
        try:
            return respond(sample_id)
        except DataError as error:
            _log.error("%s", error)
            return _sorry("This image cannot be shown.", 404)

    def answer(self) -> Answer:
        """Store an answer, and return the view after it."""
        body = _Answer.model_validate_json(request.get_data())
        rules = self.desk.rules
        allowed_kinds = ("label", "skip", *rules.no_class)
        if body.sample_id not in self.pictures.ids or body.kind not in allowed_kinds:
            return _sorry(_FOREIGN, 400)
        if body.sample_id not in self.desk.asked():
            raise Stale(body.annotator, "Nobody has asked about this image. Nothing was changed.")
        label = body.label
        if label is not None:
            # The page sends names of classes, never the site's own words for them.
            words = {name: name for name in self.pictures.classes}
            try:
                label = rules.label(label, words)
            except ValueError:
                return _sorry(_FOREIGN, 400)
        message = SentAnswer(
            annotator=body.annotator,
            sample_id=body.sample_id,
            kind=body.kind,
            label=label,
            key=body.key,
            seen=body.seen,
            seconds=body.seconds,
            remark=Remark(**body.remark.model_dump()),
            again=body.again,
        )
        self.desk.answer(message)
        return self._view(body.annotator)

    def undo(self) -> Answer:
        """Take the newest answer back, and return a view that shows its image."""
        body = _Undo.model_validate_json(request.get_data())
        sample_id = self.desk.undo(body.annotator, body.answer, body.key)
        return self._view(body.annotator, sample_id)

    def stale(self, error: Stale) -> Answer:
        """Return the reason why nothing was changed, and the present view."""
        view = self._with_image(self.desk.view(error.annotator))
        return jsonify({"message": str(error), "view": view}), 409

    def refuse(self, error: HTTPException) -> tuple[str | Response, int]:
        """Return a sentence instead of the page or its data."""
        code = error.code or 500
        text = _REFUSALS.get(code, "There is nothing here. Open the page by its full address.")
        if request.path == "/":
            return self.start(text), code
        return _sorry(text, code)

    def _view(self, annotator: str, showing: str = "", *, again: bool = False) -> Response:
        return jsonify(self._with_image(self.desk.view(annotator, showing, again=again)))

    def _with_image(self, view: View) -> dict[str, Any]:
        """Return a view with facts about its image.

        They are the cells of the CSV that the site shows, the images of its group, how many more
        there are of these, and its place in a volume.
        """
        fields = asdict(view)
        fields["own_agreement"] = view.own_agreement.text() if view.own_agreement else ""
        if view.image is None:
            return fields | {"facts": [], "group": [], "more": 0, "slice": None}
        # Its request would give away whether a run asks about it, and how sure the model is.
        fields["image"] = {"sample_id": view.image.sample_id}
        name = view.image.sample_id
        group = list(dict.fromkeys([name, *view.together, *self.pictures.group(name)]))
        place = self.pictures.slice(name)
        about_image = {
            "facts": self.pictures.facts(name),
            "group": group[: 1 + _LARGEST_GROUP],
            "more": max(0, len(group) - 1 - _LARGEST_GROUP),
            "slice": None if place is None else asdict(place),
        }
        return fields | about_image

    def _choices(self) -> list[dict[str, str]]:
        """Return the buttons of the classes; there are keys for the first of them alone."""
        choices = []
        for number, name in enumerate(self.pictures.classes):
            words = self.pictures.words[name]
            choice = {
                "name": name,
                "key": KEYS[number] if number < len(KEYS) else "",
                "title": words.title or name,
                "definition": words.definition,
            }
            choices.append(choice)
        return choices


def _reader() -> str:
    return _NAME.validate_python(request.args.get("annotator", ""))


def _not_understood(error: ValidationError) -> Answer:
    if any(detail["type"] == _FORMULA for detail in error.errors()):
        return _sorry(f"The page needs {NO_FORMULA}. Change the name, above on the right.", 400)
    return _sorry("The page sent something that was not understood. Please reload it.", 400)


def _not_stored(error: DataError) -> Answer:
    _log.error("%s", error)
    return _sorry(
        "The queue cannot be used. "
        "Please tell your IT: the terminal running “fedward annotate” shows why.",
        503,
    )


def _sorry(text: str, code: int) -> tuple[Response, int]:
    return jsonify({"message": text}), code
