# SPDX-License-Identifier: Apache-2.0
"""Turns the Python packages that flextrace asks for into checks: each is imported."""

from __future__ import annotations

import importlib
import re
import shlex
import sys
from collections.abc import Mapping
from importlib import metadata

from flextrace.checks.check import Check, ok, warn

AREA = "Python"
LOST = "what makes use of it does not work; record, doctor and the recorder do"


def requirements() -> list[str]:
    """What the installed flextrace requires, such as ``pandas>=3``; empty if it is not installed."""
    try:
        wanted = metadata.requires("flextrace") or []
    except metadata.PackageNotFoundError:
        return []
    return [text for text in wanted if "extra ==" not in text]


def own_version() -> str | None:
    """Version of the installed flextrace."""
    try:
        return metadata.version("flextrace")
    except metadata.PackageNotFoundError:
        return None


def module_of(package: str, packages_of: Mapping[str, list[str]]) -> str:
    """What to import of a package: mostly called as it is, but scikit-learn has sklearn."""
    modules = [name for name, packages in packages_of.items() if package in packages and not name.startswith("_")]
    return package if package in modules or not modules else modules[0]


def package_checks(wanted: list[str]) -> list[Check]:
    """One for all that can be imported, and one for each that cannot."""
    checks, found = [], []
    packages_of = metadata.packages_distributions()
    for requirement in wanted:
        name = re.split(r"[^A-Za-z0-9_.-]", requirement, maxsplit=1)[0]
        try:
            importlib.import_module(module_of(name, packages_of))
        except Exception as error:  # a broken package may raise anything
            cause = f"cannot be imported ({type(error).__name__}: {error}): {LOST}"
            remedy = f"{sys.executable} -m pip install {shlex.quote(requirement)}"
            checks.append(warn(AREA, name, cause, remedy))
        else:
            found.append(name)
    version = ".".join(map(str, sys.version_info[:3]))
    return [ok(AREA, "packages", f"Python {version} with {', '.join(found) or 'no packages'}"), *checks]
