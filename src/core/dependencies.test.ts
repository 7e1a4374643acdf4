import { describe, expect, test } from 'vitest';
import { indexOfFile, namesFile } from './dependencies.ts';

const WORKING_DIR = '$' + '{RAY_RUNTIME_ENV_CREATE_WORKING_DIR}';

describe('line of a requirements list', () => {
  test.each([
    ...[
      '-r requirements.txt',
      '-rrequirements.txt',
      '--requirement=a.txt',
      '--requirement a.txt',
      '-c ./c.txt',
      '-e .',
    ],
    ...[
      '-e ./sub',
      '--editable=sub',
      '-r',
      './wheel.whl',
      '../wheel.whl',
      'wheel-1.0-py3-none-any.whl',
      '.',
      '.[extra]',
    ],
    ...[
      'sub/dir',
      'a.tar.gz',
      '-f wheels',
      '--find-links ./wheels',
      ' -r a.txt # why',
      'name.zip ; python_version > "3"',
    ],
    ...[`-r ${WORKING_DIR}/requirements.txt`, `${WORKING_DIR}/a.whl`],
  ])('names a local file when it is %s', line => {
    expect(namesFile(line)).toBe(true);
  });

  test.each([
    ...['six', 'six==1.16.0', 'requests[security]>=2', 'a; python_version<"3.9"', '# -r x', '', 'zope.interface'],
    ...['git+https://example.com/a.git', '-e git+https://example.com/a/b.git', 'https://example.com/a.whl'],
    ...['a @ https://example.com/a.whl', '-r https://example.com/r.txt', '--index-url https://example.com/simple'],
    ...['-i https://example.com/simple', '--no-binary a', '--pre', '-f https://example.com/wheels', '-f /srv/wheels'],
    ...['/srv/wheels/a.whl', 'file:///srv/a.whl', '--extra-index-url=https://example.com', '--require-hashes'],
  ])('names no local file when it is %s', line => {
    expect(namesFile(line)).toBe(false);
  });
});

test('indexOfFile finds a file among the options of pip when it is attached or a separate argument', () => {
  const found = [['-r', 'a.txt'], ['--pre', '-ca.txt'], ['--constraint=c.txt'], ['./a.whl'], ['--find-links', 'x']];
  expect(found.map(indexOfFile)).toEqual([0, 1, 0, 0, 0]);
  const others = [[], ['--no-deps'], ['-i', 'https://example.com'], ['--cache-dir', './cache'], ['-r', '/srv/r.txt']];
  expect(others.map(indexOfFile)).toEqual([-1, -1, -1, -1, -1]);
});
