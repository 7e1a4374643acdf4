import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, test } from 'vitest';
import { ROOT, run } from '../../scripts/command.ts';
import { findInterpreters } from '../../scripts/pythons.ts';
import { currentScope, inScope } from '../scope.ts';

const PYTHON_ROOT = join(ROOT, 'runtimes/python');
const TIMEOUT_S = 240;

/**
 * Returns the modules of unit tests below `runtimes/python`, each with its suite:
 * `tests_zygote/test_forking.py`.
 */
function modules(): readonly (readonly [suite: string, module: string])[] {
  const suites = readdirSync(PYTHON_ROOT).filter(name => name.startsWith('tests'));
  return suites.sort().flatMap(suite => {
    const files = readdirSync(join(PYTHON_ROOT, suite)).filter(name => /^test_.*\.py$/.test(name));
    return files.sort().map(file => [suite, file] as const);
  });
}

/** Environment without this run's own variables, which tests of the user code's environment must not see. */
const WITHOUT_OURS = Object.fromEntries(
  Object.keys(process.env)
    .filter(name => name.startsWith('ROOKERY_'))
    .map(name => [name, undefined]),
);

const interpreters = await findInterpreters();

test('the search finds a Python of 3.6 or newer', () => {
  expect(interpreters.length).toBeGreaterThan(0);
});

describe.each(inScope(interpreters, currentScope()))('Python $version', ({ path }) => {
  test.concurrent.each(modules())('the module passes: %s/%s', { timeout: TIMEOUT_S * 1000 }, async (suite, file) => {
    const args = ['-B', '-X', 'faulthandler', '-m', 'unittest', 'discover', '-s', suite, '-p', file];
    const { code, output } = await run(path, args, {
      cwd: PYTHON_ROOT,
      env: { ...WITHOUT_OURS, PYTHONPATH: PYTHON_ROOT },
      capture: true,
      seconds: TIMEOUT_S,
    });
    expect(code, output).toBe(0);
    // A module without tests prints no such line and would pass otherwise.
    expect(output).toMatch(/^Ran [1-9]\d* tests? in /m);
  });
});
