"""A directive, `module-summary`: autosummary's table of the public names that a module defines."""

from importlib import import_module
from types import ModuleType

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.ext import autosummary


def public(module: ModuleType) -> list[str]:
    """List the public names that a module defines itself, in the order of its code."""
    return [
        name
        for name, value in vars(module).items()
        if callable(value)
        and not name.startswith("_")
        and getattr(value, "__module__", "") == module.__name__
    ]


class ModuleSummary(autosummary.Autosummary):
    """Autosummary, which has to be given every name, of the names that a module defines."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        module = import_module(self.arguments[0])
        self.content = StringList(public(module), source=module.__name__)
        before = self.env.ref_context.get("py:module")
        self.env.ref_context["py:module"] = module.__name__  # where autosummary looks for names
        try:
            return super().run()
        finally:
            self.env.ref_context["py:module"] = before


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive."""
    app.setup_extension("sphinx.ext.autosummary")
    autosummary.WELL_KNOWN_ABBREVIATIONS += ("Sec.", "Fig.", "Tab.", "App.")  # end no sentence
    app.add_directive("module-summary", ModuleSummary)
    return {"parallel_read_safe": True}
