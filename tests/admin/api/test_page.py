from html.parser import HTMLParser

from tests.admin.api.api_client import ApiClient
from tests.admin.conftest import Admin
from tracker.admin.api import GROUPS, kind
from tracker.admin.pages.rendering import prose


class Seen(HTMLParser):
    """Collects element ids, link targets, and what the CSP would block."""

    def __init__(self) -> None:
        super().__init__()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.refused: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        named = dict(attrs)
        self.ids += [value for name, value in attrs if name == "id" and value]
        self.links += [value for name, value in attrs if name == "href" and value]
        if "style" in named or any(name.startswith("on") for name in named):
            self.refused.append(tag)
        if tag == "style" or (tag == "script" and "src" not in named):
            self.refused.append(tag)


async def test_every_endpoint_is_in_the_html_reference(reader: ApiClient) -> None:
    async with reader.session.get("/api") as response:
        assert (response.status, response.content_type) == (200, "text/html")
        text = await response.text()
    seen = Seen()
    seen.feed(text)
    assert {endpoint.name for group in GROUPS for endpoint in group.all} <= set(seen.ids)
    assert len(seen.ids) == len(set(seen.ids))
    assert {link[1:] for link in seen.links if link.startswith("#")} <= set(seen.ids)
    assert not seen.refused
    assert not [link for link in seen.links if "://" in link]


async def test_the_html_reference_needs_authentication(admin: Admin) -> None:
    async with admin.client() as nobody:
        async with nobody.get("/api", allow_redirects=False) as response:
            assert response.status in (303, 401)


def test_prose_is_escaped() -> None:
    assert prose("a <b> `c<d` e") == "a &lt;b&gt; <code>c&lt;d</code> e"


def test_schemas_have_short_names() -> None:
    assert kind({"type": "array", "items": {"$ref": "#/components/schemas/PeerRow"}}) == "list of PeerRow"
    assert kind({"anyOf": [{"type": "integer"}, {"type": "null"}]}) == "integer or null"
    assert kind({"type": "string", "enum": ["a", "b"]}) == "a, b"
    assert kind({"type": "string", "format": "binary"}) == "file"
    assert kind({"const": "x"}) == "x"
    assert kind({}) == "anything"
