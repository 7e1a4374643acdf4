"""
Converts a pyproject.toml and the lock beside it to requirements.txt and constraints.txt for pip and uv.

    python requirements_of.py <directory of the files> <directory to create>

Runs in the sandbox of a build, with the interpreter for which the packages are built.
"""
import os
import re
import sys

try:
    import tomllib  # novm
except ImportError:
    try:
        from pip._vendor import tomli as tomllib
    except ImportError:
        tomllib = None


def main(source, target):
    project = _read(os.path.join(source, 'pyproject.toml'))
    wanted = _wanted(project)
    constraints = []
    for name in ('uv.lock', 'poetry.lock'):
        path = os.path.join(source, name)
        if os.path.exists(path):
            constraints = _constraints(_read(path))
            break
    os.makedirs(target)
    for name, lines in (('requirements.txt', wanted), ('constraints.txt', constraints)):
        with open(os.path.join(target, name), 'w') as file:
            file.write(''.join(line + '\n' for line in lines))


def _read(path):
    if tomllib is None:
        sys.exit('this Python cannot read %s: use Python 3.11 or newer, or a requirements.txt' % os.path.basename(path))
    with open(path, 'rb') as file:
        try:
            return tomllib.loads(file.read().decode('utf-8'))
        except ValueError as error:
            sys.exit('%s: %s' % (os.path.basename(path), error))


def _wanted(project):
    """Returns the packages that the project itself requires, as lines of requirements.txt."""
    standard = project.get('project', {})
    if 'dependencies' in standard.get('dynamic', []) and 'poetry' not in project.get('tool', {}):
        sys.exit('pyproject.toml: project.dependencies is dynamic: name them, or write a requirements.txt')
    wanted = list(standard.get('dependencies', []))
    sources = project.get('tool', {}).get('uv', {}).get('sources', {})
    for name in sorted(sources):
        if any(key in each for each in _many(sources[name]) for key in ('path', 'workspace')):
            sys.exit('pyproject.toml: tool.uv.sources.%s is a path: only packages of an index can be installed' % name)
    poetry = project.get('tool', {}).get('poetry', {}).get('dependencies', {})
    for name in sorted(poetry):
        if name.lower() != 'python':
            wanted.extend(_of_poetry(name, each) for each in _many(poetry[name]))
    return [line for line in wanted if line]


def _of_poetry(name, value):
    if not isinstance(value, dict):
        return name + _range(value)
    if value.get('optional'):
        return ''
    if 'path' in value:
        sys.exit('pyproject.toml: %s is a path: only packages of an index can be installed' % name)
    extras = '[%s]' % ','.join(value['extras']) if value.get('extras') else ''
    if 'git' in value:
        revision = value.get('rev') or value.get('tag') or value.get('branch')
        where = ' @ git+%s%s' % (value['git'], '@' + revision if revision else '')
    elif 'url' in value:
        where = ' @ ' + value['url']
    else:
        where = _range(value.get('version', '*'))
    markers = [value['markers']] if value.get('markers') else []
    if value.get('python'):
        markers.extend("python_version %s '%s'" % part for part in re.findall(r'(>=|<=|==|!=|<|>)\s*([\d.]+)', value['python']))
    return name + extras + where + (' ; ' + ' and '.join(markers) if markers else '')


def _range(text):
    """Converts Poetry's ranges, such as `^1.2` and `~1.2`, to the standard form."""
    return ','.join(part for part in (_bounds(each.strip()) for each in text.split(',')) if part)


def _bounds(part):
    if part in ('', '*'):
        return ''
    if part[0] in '<>=!' or part.startswith('~='):
        return part
    if part[0] in '^~':
        numbers = [int(number) for number in re.findall(r'\d+', part.split('-')[0])]
        if part[0] == '~':
            place = min(1, len(numbers) - 1)
        else:
            place = next((at for at, number in enumerate(numbers) if number), len(numbers) - 1)
        above = numbers[:place] + [numbers[place] + 1]
        return '>=%s,<%s' % (part[1:].strip(), '.'.join(str(number) for number in above))
    return '==' + part


def _constraints(lock):
    """
    Returns a line for each package of the lock with its version.

    A package with several versions is left out, unless markers distinguish them: then the requirements
    decide.
    """
    versions = {}
    for package in lock.get('package', []):
        source = package.get('source', {})
        if 'version' in package and not any(key in source for key in ('editable', 'virtual', 'directory', 'git', 'url')):
            versions.setdefault(package['name'], []).append(package)
    lines = []
    for name in sorted(versions):
        packages = versions[name]
        for package in packages:
            markers = package.get('resolution-markers') or _many(package.get('markers', []))
            if len(packages) == 1:
                lines.append('%s==%s' % (name, package['version']))
            elif markers and all(isinstance(marker, str) for marker in markers):
                condition = ' or '.join('(%s)' % marker for marker in markers)
                lines.append('%s==%s ; %s' % (name, package['version'], condition))
    return lines


def _many(value):
    return value if isinstance(value, list) else [value]


if __name__ == '__main__':
    main(sys.argv[1], sys.argv[2])
