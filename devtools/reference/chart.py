"""The chart's values, from values.yaml: the table of the chart's README as a page of its own."""

from __future__ import annotations

from devtools.chart_readme import VALUES, read_values, table
from devtools.reference.markdown import head


def page() -> str:
    """The page."""
    first = (
        "`helm install leasequeue charts/leasequeue --set …`. Unknown values are refused. What is missing, as after `--reuse-values`, is "
        "taken from the defaults."
    )
    body = table(read_values(VALUES.read_text())).replace("### ", "## ")
    return head("Values of the chart", "charts/leasequeue/values.yaml", first) + "\n" + body
