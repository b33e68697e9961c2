"""Reports as self-contained HTML pages, which need the packages of an extra."""

from gemmtune.engine.toolchain.installed import require_extra

require_extra("report", "a report", "jinja2", "matplotlib")
