"""The data of matplotlib's figures, in the wire format of the E2B code interpreter. Imported with matplotlib only."""
import functools
import re

from matplotlib import dates
from matplotlib.axes import Axes
from matplotlib.category import StrCategoryFormatter
from matplotlib.collections import PathCollection
from matplotlib.container import BarContainer
from matplotlib.patches import Wedge
from matplotlib.ticker import FixedFormatter, FuncFormatter

#: Elements of a figure, of which each is a point, a bar or a slice. A figure with more has no chart.
MOST_ELEMENTS = 50 * 1000
_DATES = (dates.DateFormatter, dates.AutoDateFormatter) + (
    (dates.ConciseDateFormatter,) if hasattr(dates, 'ConciseDateFormatter') else ())
_UNIT = re.compile(r'[(\[]([^()\[\]]+)[)\]]\s*$')
#: Attribute of axes with the numbers of their box plots, and the lines of the medians.
_BOXES = '_rookery_boxes'


class TooLarge(Exception):
    """A figure has more elements than a chart may have."""


def chart_of(figure):
    """Returns the chart of a drawn figure, or None. Several axes with data make a `superchart`."""
    filled = [axes for axes in figure.axes if axes.has_data() and not hasattr(axes, '_colorbar')]
    shown = filled or figure.axes[:1]
    try:
        charts = [_chart_of_axes(axes) for axes in shown]
    except TooLarge:
        return None
    if len(charts) == 1:
        chart = charts[0]
        chart['title'] = chart['title'] or _title_of(figure)
        return chart
    return {'type': 'superchart', 'title': _title_of(figure), 'elements': charts} if charts else None


def record_boxes():
    """Keeps the numbers of later box plots: only the call that draws one has them."""
    draw = Axes.bxp

    @functools.wraps(draw)
    def bxp(self, bxpstats, *arguments, **options):
        stats = list(bxpstats)
        drawn = draw(self, stats, *arguments, **options)
        setattr(self, _BOXES, getattr(self, _BOXES, []) + list(zip(stats, drawn['medians'])))
        return drawn

    Axes.bxp = bxp


def _title_of(figure):
    title = getattr(figure, '_suptitle', None)
    return title.get_text() if title is not None else ''


def _chart_of_axes(axes):
    """Returns the chart of the kind that the axes show first in this order: slices, boxes, bars, points."""
    chart = {'type': 'unknown', 'title': axes.get_title(), 'elements': []}
    kinds = (
        ('pie', _slices_of), ('box_and_whisker', _boxes_of), ('bar', _bars_of),
        ('scatter', _clouds_of), ('line', _lines_of),
    )
    # The artists of three dimensions have their places on the screen only.
    for kind, read in kinds if axes.name != '3d' else ():
        elements = read(axes)
        if elements:
            chart.update({'type': kind, 'elements': elements})
            break
    if chart['type'] in ('box_and_whisker', 'bar', 'scatter', 'line'):
        for name, axis in (('x', axes.xaxis), ('y', axes.yaxis)):
            chart.update(_labels_of(name, axis))
            if chart['type'] in ('scatter', 'line'):
                chart.update(_scale_of(name, axis))
    return chart


def _slices_of(axes):
    wedges = [patch for patch in axes.patches if isinstance(patch, Wedge)]
    return [{'label': _label_of(wedge), 'angle': float(wedge.theta2 - wedge.theta1), 'radius': float(wedge.r)}
            for wedge in _bounded(wedges)]


def _boxes_of(axes):
    boxes, lines = [], list(axes.lines)
    for each, line in getattr(axes, _BOXES, []):
        if line not in lines:
            continue  # the user has cleared the axes
        x, y = line.get_xdata(orig=False), line.get_ydata(orig=False)
        axis, places = (axes.xaxis, x) if y[0] == y[-1] else (axes.yaxis, y)
        boxes.append({
            'label': _name_at(axis, (places[0] + places[-1]) / 2.0),
            'min': float(each['whislo']), 'first_quartile': float(each['q1']), 'median': float(each['med']),
            'third_quartile': float(each['q3']), 'max': float(each['whishi']),
            'outliers': [float(value) for value in _bounded(each.get('fliers', []))],
        })
    return boxes


def _bars_of(axes):
    bars = []
    for container in axes.containers:
        if not isinstance(container, BarContainer):
            continue
        is_flat = getattr(container, 'orientation', None) == 'horizontal'
        axis = axes.yaxis if is_flat else axes.xaxis
        for bar in _bounded(container.patches, len(bars)):
            place, size = (bar.get_y(), bar.get_height()) if is_flat else (bar.get_x(), bar.get_width())
            bars.append({
                'label': _name_at(axis, place + size / 2.0),
                'group': _label_of(container),
                'value': float(bar.get_width() if is_flat else bar.get_height()),
            })
    return bars


def _name_at(axis, place):
    """Returns the name of a bar or box: the nearest label if labels are names, else its place."""
    formatter = axis.get_major_formatter()
    ticks = list(axis.get_majorticklocs())
    if ticks and (isinstance(formatter, (FixedFormatter, StrCategoryFormatter)) or _has_fixed_names(formatter)):
        nearest = min(range(len(ticks)), key=lambda index: abs(ticks[index] - place))
        return _texts_of(axis, ticks)[nearest]
    value = _values_of(axis, [place])[0]
    return value if isinstance(value, str) else '%g' % value


def _has_fixed_names(formatter):
    """Returns True after `set_xticklabels`, which newer releases implement with a function."""
    function = getattr(formatter, 'func', None)
    return isinstance(formatter, FuncFormatter) and isinstance(function, functools.partial)


def _clouds_of(axes):
    clouds = []
    for points in axes.collections:
        if isinstance(points, PathCollection) and points.get_offset_transform() == axes.transData:
            offsets = points.get_offsets()
            _bounded(offsets, sum(len(cloud['points']) for cloud in clouds))
            clouds.append(_points_of(axes, _label_of(points), offsets[:, 0], offsets[:, 1]))
    return clouds


def _lines_of(axes):
    lines = []
    for line in axes.lines:
        if line.get_transform() == axes.transData:  # not of `axhline` and its like
            x, y = line.get_xdata(orig=False), line.get_ydata(orig=False)
            _bounded(x, sum(len(each['points']) for each in lines))
            lines.append(_points_of(axes, _label_of(line), x, y))
    return lines


def _points_of(axes, label, x, y):
    pairs = zip(_values_of(axes.xaxis, x), _values_of(axes.yaxis, y))
    return {'label': label, 'points': [list(pair) for pair in pairs]}


def _label_of(artist):
    """Returns the label of a legend, or an empty text."""
    label = str(artist.get_label() or '')
    return '' if label.startswith('_') else label


def _labels_of(name, axis):
    label = axis.get_label().get_text()
    unit = _UNIT.search(label)
    return {name + '_label': label or None, name + '_unit': unit.group(1).strip() if unit else None}


def _scale_of(name, axis):
    ticks = list(axis.get_majorticklocs())
    formatter = axis.get_major_formatter()
    kind = axis.get_scale()
    if isinstance(formatter, _DATES) or _is_of_periods(formatter):
        kind = 'datetime'
    elif isinstance(formatter, StrCategoryFormatter):
        kind = 'categorical'
    return {
        name + '_ticks': _values_of(axis, ticks),
        name + '_tick_labels': _texts_of(axis, ticks),
        name + '_scale': kind,
    }


def _texts_of(axis, ticks):
    return [str(text) for text in axis.get_major_formatter().format_ticks(ticks)]


def _values_of(axis, numbers):
    """Returns numbers as clients see them: times as ISO 8601, categories as their names."""
    formatter = axis.get_major_formatter()
    if isinstance(formatter, _DATES):
        return [dates.num2date(number).isoformat() for number in numbers]
    if _is_of_periods(formatter):
        from pandas import Period
        periods = [Period(ordinal=int(round(number)), freq=formatter.freq) for number in numbers]
        return [period.to_timestamp().isoformat() for period in periods]
    if isinstance(formatter, StrCategoryFormatter):
        return _texts_of(axis, numbers)
    return [float(number) for number in numbers]


def _is_of_periods(formatter):
    """Returns True for the times of pandas, which counts days, months or other periods."""
    return type(formatter).__name__ == 'TimeSeries_DateFormatter'


def _bounded(elements, before=0):
    """Returns the elements. Raises TooLarge if they are too many with those before."""
    if len(elements) + before > MOST_ELEMENTS:
        raise TooLarge()
    return elements
