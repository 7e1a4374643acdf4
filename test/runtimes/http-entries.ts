import type { RuntimeEntries } from '../suites/runtime.ts';

/** Entries of test/fixtures/http/server.py. */
export const HTTP_ENTRIES: RuntimeEntries = {
  echo: 'echo',
  fail: 'fail',
  exit: 'exit',
  count: 'count',
  gate: 'gate',
  sleep: 'sleep',
  notJson: 'not_json',
  text: 'text',
  deep: 'deep',
  stream: 'stream',
  log: 'log',
  flood: 'flood',
  facts: 'facts',
  start: 'start',
  startFails: 'start_fails',
  startSlow: 'start_slow',
  stop: '',
  stopFails: '',
  stopSlow: '',
  unloadable: {},
};
