import { join } from 'node:path';
import type { RuntimeEntries } from '../suites/runtime.ts';

export const PYTHON_CODE = join(import.meta.dirname, 'python-code');

/** Entries of the runtime suite in Python. */
export const PYTHON_ENTRIES: RuntimeEntries = {
  echo: 'main.echo',
  fail: 'main.fail',
  exit: 'main.exit',
  count: 'main.count',
  gate: 'main.gate',
  sleep: 'main.sleep',
  notJson: 'main.not_json',
  text: 'main.text',
  deep: 'main.deep',
  stream: 'main.stream',
  log: 'main.log',
  flood: 'main.flood',
  facts: 'main.facts',
  spans: 'main.spans',
  manySpans: 'main.many_spans',
  start: 'main.start',
  startFails: 'main.start_fails',
  startSlow: 'main.start_slow',
  stop: 'main.stop',
  stopFails: 'main.stop_fails',
  stopSlow: 'main.stop_slow',
  unloadable: {
    'nowhere.handler': `module nowhere not found: neither ${PYTHON_CODE}/nowhere.py`,
    'main.nothing': `${PYTHON_CODE}/main.py has no function nothing`,
    'broken.handler': `${PYTHON_CODE}/broken.py:2: SyntaxError`,
    handler: 'it must have the form module.function',
  },
};
