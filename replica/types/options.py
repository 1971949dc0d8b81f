"""Options of a process, each defined once, at a field of a dataclass: its flag, its variable and its key in a file.

A field that is annotated with an `Option` can be set by `--its-name`, by `PREFIX_ITS_NAME` in the environment and by
`its_name` in a TOML file. The first of these counts, then the default.
"""

from __future__ import annotations

import argparse
import difflib
import json
import math
import os
import re
import textwrap
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from pathlib import Path
from typing import Any, TypeAlias, TypeVar, cast, get_args, get_type_hints

from .arguments import as_given
from .errors import InvariantViolation, Refused
from .ids import Address

T = TypeVar("T")
Plain: TypeAlias = str | bool | int | float | list[str]
"""The value of an option as a file has it."""
CONFIG_BYTES_MAX = 1 << 20
_NEAR = 0.8
"""The likeness from which a variable of the environment is a misspelt option. Others belong to other programs, such as
those that Kubernetes makes of a service's name."""
_UNITS = {
    "ms": {"ms": 1.0, "s": 1e3, "sec": 1e3, "m": 60e3, "min": 60e3, "h": 3600e3, "d": 86400e3},
    "s": {"ms": 1e-3, "s": 1.0, "sec": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0},
    "bytes": {"b": 1.0, "k": 1024.0, "kib": 1024.0, "kb": 1e3, "m": 1048576.0, "mib": 1048576.0, "mb": 1e6,
              "g": 1073741824.0, "gib": 1073741824.0, "gb": 1e9},
}  # fmt: skip
_UNIT_NAMES = {"mb_per_s": "10^6 bytes per second", "bytes_per_s": "bytes per second", "ms": "milliseconds",
               "s": "seconds", "bytes": "bytes"}  # fmt: skip
_QUANTITY = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]+)(?:/s)?")


@dataclass(frozen=True)
class Option:
    """What an annotation says of an option beside its type and default."""

    help: str
    name: str = ""
    """If it is not the field's. The field then has another type than the option."""
    plain: str | bool | None = None
    """The default of an option whose field has another type."""
    made: Callable[[Any], Any] | None = None
    """Makes the field's value of the option's; a ValueError or Refused says what is wrong."""
    choices: tuple[str, ...] = ()
    in_file: bool = True


@dataclass(frozen=True)
class _Known:
    """One option of a process. `kind`: str, int, float, bool or list, which is a list of addresses."""

    name: str
    kind: type
    default: Plain
    option: Option
    within: tuple[str, str]
    """(the field that holds the dataclass of this one, or "", and this field)."""

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")

    @property
    def unit(self) -> str:
        return next((unit for unit in _UNIT_NAMES if self.name.removesuffix("_max").endswith("_" + unit)), "")

    @property
    def takes(self) -> str:
        """The values that it takes, in words."""
        if self.option.choices:
            return f"one of {', '.join(map(json.dumps, self.option.choices))}"
        of_unit = f" of {_UNIT_NAMES[self.unit]}" if self.unit else ""
        return {
            str: "a text in quotation marks",
            bool: "true or false",
            list: 'a list of addresses, such as ["host:7051"]',
            int: f"a whole number{of_unit}",
            float: f"a number{of_unit}",
        }[self.kind]


def _known(options: type, field_name: str = "") -> tuple[_Known, ...]:
    """The options of a dataclass; those of a dataclass in a field count as its own."""
    found: list[_Known] = []
    kinds = get_type_hints(options, include_extras=True)
    for field in fields(options):
        kind, *notes = get_args(kinds[field.name]) or (kinds[field.name],)
        if is_dataclass(kind) and isinstance(kind, type) and not notes:
            found += _known(kind, field.name)
        for option in notes:
            if not isinstance(option, Option):
                continue
            default = field.default if option.plain is None else option.plain
            if default is MISSING:
                default = ""
            if isinstance(default, tuple):
                kind, default = list, []
            elif option.plain is not None:
                kind = type(option.plain)
            found.append(_Known(option.name or field.name, kind, default, option, (field_name, field.name)))
    return tuple(found)


def read_options(options: type[T], program: str, prefix: str, arguments: Sequence[str], *, about: str = "") -> T:
    """Make the options of flags, environment and file; ends the process with a clear line and status 2 if that cannot
    be, and with the file of all values in force on standard output if `--print-config` asks for it."""
    known = {each.name: each for each in _known(options)}
    parser = argparse.ArgumentParser(
        prog=program,
        description=about,
        argument_default=argparse.SUPPRESS,
        epilog=f"Each option is also a variable, such as {prefix}_LISTEN, and a key of the file of --config, such as "
        "listen. A flag comes first, then the variable, then the file.",
    )
    parser.add_argument("--config", metavar="FILE", help="file of options (TOML)")
    parser.add_argument("--print-config", action="store_true", help="print the file of all values in force, and end")
    for each in known.values():
        text = each.option.help.replace("%", "%%")
        if each.kind is bool:
            parser.add_argument(each.flag, action=argparse.BooleanOptionalAction, help=text)
        else:
            parser.add_argument(each.flag, choices=each.option.choices or None, help=f"{text} ({_shown(each)})")
    given = vars(parser.parse_args(arguments))
    file, printing = given.pop("config", os.environ.get(f"{prefix}_CONFIG", "")), given.pop("print_config", False)
    try:
        values = {name: each.default for name, each in known.items()}
        values |= read_file(options, file) if file else {}
        values |= _of_environment(known, prefix)
        values |= {name: _of_text(known[name], value, known[name].flag) for name, value in given.items()}
        if printing:
            print(config_text(options, values), end="")
            parser.exit()
        return _made(options, known, values)
    except (ValueError, InvariantViolation, Refused) as error:
        parser.exit(2, f"{program}: {error}\n")


def read_file(options: type, file: str) -> dict[str, Plain]:
    """Read the options that a TOML file sets. ValueError if one is not known or its value is none; it names the file,
    the key and the value, and says what to write."""
    known = {each.name: each for each in _known(options) if each.option.in_file}
    try:
        with Path(file).open("rb") as opened:
            text = opened.read(CONFIG_BYTES_MAX + 1)
        if len(text) > CONFIG_BYTES_MAX:
            raise ValueError(f"it has more than {CONFIG_BYTES_MAX} bytes")
        found = tomllib.loads(text.decode())
    except (OSError, ValueError, RecursionError) as error:  # TOMLDecodeError and UnicodeDecodeError are ValueErrors
        raise ValueError(f"the file of options {file} cannot be read: {error}. Nothing was started") from error
    for name, value in found.items():
        where = f"{file}: {name} = {as_given(value)}"
        if name not in known:
            raise ValueError(f"{where}: there is no option {name}{_instead(name, known)}. Nothing was started")
        found[name] = _checked(known[name], value, where)
    return found


def config_text(options: type, values: Mapping[str, Plain] | None = None) -> str:
    """The text of a file with these values, by default the defaults; each option is explained in it."""
    lines = ["# Options of a process of Nyala. A flag or a variable of the environment comes before this file.\n"]
    for each in _known(options):
        if each.option.in_file:
            value = each.default if values is None else values[each.name]
            about = f"{each.option.help} ({each.takes})"
            lines += textwrap.wrap(about, 100, initial_indent="# ", subsequent_indent="# ")
            lines.append(f"{each.name} = {json.dumps(value, ensure_ascii=False)}\n")
    return "\n".join(lines)


def table_of(options: type) -> list[tuple[str, str, str]]:
    """(flag, default, what it means) of each option, in their order, for a page."""
    return [(each.flag, _shown(each), each.option.help) for each in _known(options)]


def _made(options: type[T], known: Mapping[str, _Known], values: Mapping[str, Plain]) -> T:
    fields_of: dict[str, dict[str, Any]] = {"": {}}
    for name, each in known.items():
        holder, field_name = each.within
        value: Plain | tuple[Address, ...] = values[name]
        if isinstance(value, list):
            value = tuple(map(Address.given, value))
        fields_of.setdefault(holder, {})[field_name] = each.option.made(value) if each.option.made else value
    kinds = get_type_hints(options)
    below = {holder: kinds[holder](**given) for holder, given in fields_of.items() if holder}
    return options(**fields_of[""], **below)


def _of_environment(known: Mapping[str, _Known], prefix: str) -> dict[str, Plain]:
    found = {}
    names = {f"{prefix}_{name.upper()}": name for name, each in known.items() if each.option.in_file}
    for variable, text in os.environ.items():
        if variable in names:
            found[names[variable]] = _of_text(known[names[variable]], text, f"{variable} in the environment")
            continue
        name = variable.removeprefix(f"{prefix}_").lower()
        if variable != f"{prefix}_{name.upper()}" or name == "config":
            continue
        if near := difflib.get_close_matches(name, known, 1, _NEAR):
            what = f"{variable} in the environment is no option; write {prefix}_{near[0].upper()}"
            raise ValueError(f"{what}. Nothing was started")
    return found


def _of_text(known: _Known, text: str | bool, where: str) -> Plain:
    """The value of a flag or a variable."""
    value: Plain = text
    if isinstance(text, bool) or known.kind is str:
        pass
    elif known.kind is list:
        value = [part.strip() for part in text.split(",") if part.strip()]
    elif known.kind is bool:
        value = {"true": True, "false": False}.get(text.lower(), text)
    else:
        try:
            value = known.kind(text)
        except ValueError:
            value = text
    return _checked(known, value, f"{where}: {as_given(text)}")


def _checked(known: _Known, value: Plain, where: str) -> Plain:
    """The value, if it is of the option's type. The ValueError says what to write."""
    kind, choices = known.kind, known.option.choices
    if kind is float and type(value) is int:
        value = float(value)
    fits = type(value) is kind and not (isinstance(value, float) and not math.isfinite(value))
    if kind is list and fits:
        fits = all(isinstance(each, str) for each in cast("list[object]", value))
    if not fits or (choices and value not in choices):
        better = _without_unit(known, value)
        raise ValueError(f"{where}: {known.name} takes {known.takes}{better}. Nothing was started")
    return value


def _without_unit(known: _Known, value: object) -> str:
    """What to write instead of a number in another type or with a unit, such as "5s"; empty if it is no such value."""
    found = _QUANTITY.fullmatch(value.strip()) if isinstance(value, str) else None
    unit = known.unit.removesuffix("_per_s")
    factors = _UNITS.get("bytes" if unit == "mb" else unit, {})
    if known.kind not in (int, float) or found is None or found[2].lower() not in factors:
        return ""
    number = float(found[1]) * factors[found[2].lower()] / (1e6 if unit == "mb" else 1)
    return f", without a unit; write {known.name} = {known.kind(number)}"


def _instead(name: str, known: Mapping[str, _Known]) -> str:
    """The option that is likeliest meant by a name, such as one in another unit."""
    for other in difflib.get_close_matches(name, known, 1):
        return f"; write {other}, which takes {known[other].takes}"
    return "; --print-config shows all of them"


def _shown(known: _Known) -> str:
    return "default: " + json.dumps(known.default) if known.default not in ("", []) else "no default"
