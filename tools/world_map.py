"""Makes the dashboard's outlines of countries, tracker/admin/world/countries.json, and tracker/country_names.json.

    npm pack world-atlas@2.0.2 i18n-iso-countries@7.14.0     # and unpack both
    python tools/world_map.py countries-110m.json countries-50m.json codes.json /usr/share/zoneinfo/iso3166.tab

The outlines are Natural Earth's (public domain), as packed by world-atlas, in the projection of the same name. It
enlarges areas far from the equator a little: the small countries of Europe are distinguishable, and Greenland is
smaller than Africa. A country that is missing on the coarse map becomes a dot in the middle of its outline on the fine
one. Names come from the time zone database (public domain), or are those of GeoIP databases where the two differ.
codes.json maps ISO numbers to two-letter codes.
"""

import json
import math
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Point = tuple[float, float]

CUT = -169.0  # degrees of longitude of the map's edge, between Chukotka and Alaska
WIDTH = 2000  # units of the map's viewBox
SOUTH = -56.5  # degrees of latitude; Antarctica is left out
UNNUMBERED = {"Kosovo": "XK", "Somaliland": "SO", "N. Cyprus": "CY"}
LEFT_OUT = {"AQ", "TF"}
NAMES = {
    "AG": "Antigua and Barbuda", "AS": "American Samoa", "BA": "Bosnia and Herzegovina", "BL": "Saint Barthélemy",
    "BQ": "Bonaire, Sint Eustatius, and Saba", "CD": "DR Congo", "CF": "Central African Republic",
    "CG": "Congo Republic", "CI": "Ivory Coast", "CZ": "Czechia", "GB": "United Kingdom",
    "GS": "South Georgia and the South Sandwich Islands", "HM": "Heard and McDonald Islands",
    "KN": "St Kitts and Nevis", "KP": "North Korea", "KR": "South Korea",
    "LC": "Saint Lucia", "MF": "Saint Martin", "MM": "Myanmar", "MO": "Macao",
    "PM": "Saint Pierre and Miquelon", "SH": "Saint Helena", "SJ": "Svalbard and Jan Mayen",
    "ST": "São Tomé and Príncipe", "SX": "Sint Maarten", "SZ": "Eswatini", "TC": "Turks and Caicos Islands",
    "TF": "French Southern Territories", "TL": "Timor-Leste", "TR": "Türkiye", "TT": "Trinidad and Tobago",
    "UM": "U.S. Outlying Islands", "VC": "St Vincent and Grenadines", "VG": "British Virgin Islands",
    "VI": "U.S. Virgin Islands", "CV": "Cabo Verde", "NL": "The Netherlands", "PN": "Pitcairn Islands",
    "WF": "Wallis and Futuna", "WS": "Samoa", "XK": "Kosovo",
}  # fmt: skip


def main(coarse: str, fine: str, codes: str, names: str) -> None:
    numbers = {number: letters for letters, _, number, *_ in json.loads(Path(codes).read_text("utf-8"))}
    outlines = dict(_countries(coarse, numbers))
    dots = {code: rings for code, rings in _countries(fine, numbers).items() if code not in outlines}
    x_scale, x_shift, y_shift, height = _frame()

    def place(point: Point) -> tuple[int, int]:
        x, y = _natural_earth(*point)
        return round((x - x_shift) * x_scale), round((y_shift - y) * x_scale)

    made: dict[str, object] = {
        "width": WIDTH,
        "height": height,
        "outlines": {code: "".join(_path(map(place, ring)) for ring in outlines[code]) for code in sorted(outlines)},
        "dots": {code: place(_middle(max(dots[code], key=_size))) for code in sorted(dots)},
    }
    _write("admin/world/countries.json", made)
    _write("country_names.json", dict(sorted({**_names(names), **NAMES}.items())))


def _write(name: str, made: object) -> None:
    target = Path(__file__).parents[1] / "tracker" / name
    target.write_text(json.dumps(made, ensure_ascii=False, indent=0) + "\n", encoding="utf-8")


def _names(path: str) -> dict[str, str]:
    lines = (line for line in Path(path).read_text("utf-8").splitlines() if not line.startswith("#"))
    return dict(line.split("\t") for line in lines)


def _countries(path: str, numbers: dict[str, str]) -> dict[str, list[list[Point]]]:
    """The outer and inner rings of each country, in degrees."""
    topology = json.loads(Path(path).read_text("utf-8"))
    arcs = [list(_arc(arc, topology["transform"])) for arc in topology["arcs"]]
    found: dict[str, list[list[Point]]] = {}
    for geometry in topology["objects"]["countries"]["geometries"]:
        code = numbers.get(str(geometry.get("id"))) or UNNUMBERED.get(geometry["properties"]["name"])
        if code is None or code in LEFT_OUT:
            continue
        polygons = geometry["arcs"] if geometry["type"] == "MultiPolygon" else [geometry["arcs"]]
        for polygon in polygons:
            for ring in polygon:
                points = _uncut([point for index in ring for point in _follow(arcs, index)])
                # The coarse map draws French Guiana as a part of France; it has a code of its own.
                part = "GF" if code == "FR" and _middle(points)[0] < -30 and _middle(points)[1] < 10 else code
                found.setdefault(part, []).append(points)
    return found


def _arc(arc: list[list[int]], transform: dict[str, Any]) -> Iterator[Point]:
    x = y = 0
    for dx, dy in arc:
        x, y = x + dx, y + dy
        yield (
            x * transform["scale"][0] + transform["translate"][0],
            y * transform["scale"][1] + transform["translate"][1],
        )


def _follow(arcs: list[list[Point]], index: int) -> list[Point]:
    """An arc without its last point, which begins the next one. A negative index reverses it."""
    return arcs[index][:-1] if index >= 0 else arcs[~index][:0:-1]


def _uncut(ring: list[Point]) -> list[Point]:
    """The ring in one piece across the date line, on the map's side of the cut."""
    lon = [ring[0][0]]
    for x, _ in ring[1:]:
        lon.append(x + 360 * round((lon[-1] - x) / 360))
    shift = 360 * math.ceil((CUT - sum(lon) / len(lon)) / 360)
    return [(x + shift, y) for x, (_, y) in zip(lon, ring, strict=True)]


def _size(ring: list[Point]) -> float:
    following = [*ring[1:], ring[0]]
    return abs(sum(a[0] * b[1] - b[0] * a[1] for a, b in zip(ring, following, strict=True)))


def _middle(ring: list[Point]) -> Point:
    return sum(x for x, _ in ring) / len(ring), sum(y for _, y in ring) / len(ring)


def _natural_earth(longitude: float, latitude: float) -> Point:
    """Patterson's projection as a polynomial (Šavrič, Jenny, Patterson, Petrovič and Hurni, 2011)."""
    from_middle, phi = math.radians(longitude - (CUT + 180)), math.radians(latitude)
    x = 0.8707 - 0.131979 * phi**2 - 0.013791 * phi**4 + 0.003971 * phi**10 - 0.001529 * phi**12
    y = 1.007226 + 0.015085 * phi**2 - 0.044475 * phi**6 + 0.028874 * phi**8 - 0.005916 * phi**10
    return from_middle * x, phi * y


def _frame() -> tuple[float, float, float, int]:
    left, right = _natural_earth(CUT, 0)[0], _natural_earth(CUT + 360, 0)[0]
    top, bottom = _natural_earth(0, 84)[1], _natural_earth(0, SOUTH)[1]
    scale = WIDTH / (right - left)
    return scale, left, top, round((top - bottom) * scale)


def _path(points: Iterator[tuple[int, int]]) -> str:
    """An SVG path of relative integer coordinates, half as long as absolute ones."""
    first = at = next(points)
    steps = []
    for point in points:
        if point != at:
            steps.append(f"{point[0] - at[0]} {point[1] - at[1]}")
            at = point
    return f"M{first[0]} {first[1]}l{' '.join(steps)}z".replace(" -", "-") if len(steps) > 1 else ""


if __name__ == "__main__":
    main(*sys.argv[1:])
