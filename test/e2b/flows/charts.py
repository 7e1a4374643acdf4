"""Checks the data of charts with the newest SDK of the code interpreter: ruling A6.4."""

import datetime
import io
import os
import tarfile

from checks import check, run_checks
from e2b_code_interpreter import Sandbox
from e2b_code_interpreter.charts import ChartType

sandbox = Sandbox.create(timeout=600)
IMPORTS = "import sys; sys.path.insert(0, '/home/user/packages')\nimport matplotlib.pyplot as plt\n"


def chart_of(code):
    """Returns the chart of the one figure of a cell, which is an image too."""
    execution = sandbox.run_code(code)
    assert execution.error is None, execution.error.traceback
    (result,) = execution.results
    assert result.png and set(result.formats()) >= {"text", "png", "chart"}, result.formats()
    return result.chart


@check("A6.4 a sandbox gets matplotlib")
def prepare():
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w") as tar:
        tar.add(os.environ["PACKAGES"], "packages", filter=lambda each: None if "/tests" in each.name else each)
    sandbox.files.write("packages.tar", archive.getvalue())
    sandbox.commands.run("tar -xf packages.tar && rm packages.tar")
    assert sandbox.run_code(IMPORTS).error is None


@check("A6.4 a line chart has its points, labels, units, ticks and scales")
def line():
    chart = chart_of(
        "plt.plot([1, 2, 3], [1, 10, 100], label='growth'); plt.plot([1, 3], [5, 5])\n"
        "plt.axhline(50); plt.yscale('log'); plt.xlabel('Time (s)'); plt.ylabel('Size'); plt.title('A line'); plt.show()"
    )
    assert chart.type == ChartType.LINE and chart.title == "A line"
    assert (chart.x_label, chart.x_unit, chart.y_label, chart.y_unit) == ("Time (s)", "s", "Size", None)
    assert (chart.x_scale.value, chart.y_scale.value) == ("linear", "log")
    assert [each.label for each in chart.elements] == ["growth", ""]
    assert chart.elements[0].points == [(1.0, 1.0), (2.0, 10.0), (3.0, 100.0)]
    assert len(chart.x_ticks) == len(chart.x_tick_labels) and all(isinstance(each, float) for each in chart.x_ticks)
    assert all(isinstance(each, str) for each in chart.y_tick_labels)


@check("A6.4 times of a chart are ISO 8601, and categories are their names")
def scales():
    chart = chart_of(
        "import datetime\ndays = [datetime.datetime(2026, 11, day) for day in (1, 2, 3)]\n"
        "plt.plot(days, [1, float('nan'), 3]); plt.show()"
    )
    assert chart.x_scale.value == "datetime"
    assert [datetime.datetime.fromisoformat(x).day for x, _ in chart.elements[0].points] == [1, 2, 3]
    assert [y for _, y in chart.elements[0].points] == [1.0, None, 3.0]
    assert all(datetime.datetime.fromisoformat(each) for each in chart.x_ticks)
    chart = chart_of("plt.plot(['one', 'two'], [1, 2]); plt.show()")
    assert chart.x_scale.value == "categorical" and chart.x_ticks == ["one", "two"]
    assert chart.elements[0].points == [("one", 1.0), ("two", 2.0)]


@check("A6.4 a scatter chart has the points of each cloud")
def scatter():
    chart = chart_of("plt.scatter([1, 2], [3, 4], label='a'); plt.scatter([5], [6], label='b'); plt.show()")
    assert chart.type == ChartType.SCATTER
    assert [(each.label, each.points) for each in chart.elements] == [("a", [(1.0, 3.0), (2.0, 4.0)]), ("b", [(5.0, 6.0)])]


@check("A6.4 a bar chart has the label, group and value of each bar")
def bar():
    chart = chart_of("plt.bar(['x', 'y'], [3, 4], label='sold'); plt.ylabel('Books'); plt.show()")
    assert chart.type == ChartType.BAR and chart.y_label == "Books"
    assert [(each.label, each.group, each.value) for each in chart.elements] == [("x", "sold", 3.0), ("y", "sold", 4.0)]
    chart = chart_of(
        "plt.bar([-0.2, 0.8], [1, 2], 0.4, label='a'); plt.bar([0.2, 1.2], [3, 4], 0.4, label='b')\n"
        "plt.xticks([0, 1], ['north', 'south']); plt.legend(); plt.show()"
    )
    bars = [(each.label, each.group, each.value) for each in chart.elements]
    assert bars == [("north", "a", 1.0), ("south", "a", 2.0), ("north", "b", 3.0), ("south", "b", 4.0)]
    chart = chart_of("plt.barh([10, 20], [5, 6]); plt.show()")
    assert [(each.label, each.value) for each in chart.elements] == [("10", 5.0), ("20", 6.0)]


@check("A6.4 a pie chart has the label, angle and radius of each slice")
def pie():
    chart = chart_of("plt.pie([1, 3], labels=['small', 'large'], startangle=90, shadow=True); plt.title('Pie'); plt.show()")
    assert chart.type == ChartType.PIE and chart.title == "Pie"
    slices = [(each.label, round(each.angle, 3), each.radius) for each in chart.elements]
    assert slices == [("small", 90.0, 1.0), ("large", 270.0, 1.0)]


@check("A6.4 a box and whisker chart has the numbers and the outliers of each box")
def box():
    chart = chart_of("plt.boxplot([[1, 2, 3, 4, 5, 100], [7, 7, 7]], tick_labels=['A', 'B']); plt.show()")
    assert chart.type == ChartType.BOX_AND_WHISKER
    first, second = chart.elements
    assert (first.label, first.min, first.first_quartile, first.median) == ("A", 1.0, 2.25, 3.5)
    assert (first.third_quartile, first.max, first.outliers) == (4.75, 5.0, [100.0])
    assert (second.label, second.median, second.outliers) == ("B", 7.0, [])
    chart = chart_of("plt.boxplot([[1, 2], [3, 4]]); plt.xticks([1, 2], ['C', 'D']); plt.show()")
    assert [each.label for each in chart.elements] == ["C", "D"]
    chart = chart_of("plt.boxplot([[1, 2, 6], [3, 4]], vert=False); plt.show()")
    assert [(each.label, each.median) for each in chart.elements] == [("1", 2.0), ("2", 3.5)]


@check("A6.4 several axes make a superchart, without colour bars and empty axes")
def superchart():
    chart = chart_of(
        "figure, axes = plt.subplots(2, 2); figure.suptitle('Both')\n"
        "axes[0][0].plot([1, 2], [3, 4]); axes[0][0].set_title('left')\n"
        "figure.colorbar(axes[0][1].scatter([1], [2], c=[3])); plt.show()"
    )
    assert chart.type == ChartType.SUPERCHART and chart.title == "Both"
    assert [(each.type, each.title) for each in chart.elements] == [(ChartType.LINE, "left"), (ChartType.SCATTER, "")]


@check("A6.4 a figure of another kind has a chart of unknown kind, and one with too many points none")
def others():
    chart = chart_of("plt.imshow([[1, 2], [3, 4]]); plt.title('image'); plt.show()")
    assert (chart.type, chart.title, chart.elements) == (ChartType.UNKNOWN, "image", [])
    chart = chart_of("plt.figure().add_subplot(projection='3d').scatter([1], [2], [3]); plt.show()")
    assert (chart.type, chart.elements) == (ChartType.UNKNOWN, [])
    (result,) = sandbox.run_code("plt.plot(range(60000)); plt.show()").results
    assert result.png and result.chart is None


@check("A6.4 a figure made without pyplot has a chart too")
def without_pyplot():
    context = sandbox.create_code_context()
    code = "from matplotlib.figure import Figure\nfigure = Figure(); axes = figure.subplots(); axes.boxplot([1, 2, 3]); figure"
    execution = sandbox.run_code(IMPORTS.splitlines()[0] + "\n" + code, context=context)
    chart = execution.results[0].chart
    assert chart.type == ChartType.BOX_AND_WHISKER and chart.elements[0].median == 2.0


run_checks()
