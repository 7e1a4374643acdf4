"""The backend of matplotlib in a cell: `show()` sends figures as PNG and as data. Imported by matplotlib only."""
import builtins
import io

from matplotlib.backend_bases import FigureManagerBase
from matplotlib.backends.backend_agg import FigureCanvasAgg

FigureCanvas = FigureCanvasAgg
FigureManager = FigureManagerBase


def png_of(figure):
    """Returns a figure as PNG."""
    target = io.BytesIO()
    figure.savefig(target, format='png', bbox_inches='tight')
    return target.getvalue()


def chart_of(figure):
    """Returns a drawn figure as data, or None: a figure that cannot be read is an image only."""
    try:
        from rookery_interpreter import charts
        return charts.chart_of(figure)
    except Exception:
        return None


def show(*_arguments, **_options):
    """Shows all open figures and closes them."""
    from matplotlib import pyplot
    for number in pyplot.get_fignums():
        figure = pyplot.figure(number)
        if figure.get_axes() or figure.lines or figure.images:
            builtins.display(figure)
        pyplot.close(figure)
