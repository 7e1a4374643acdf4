import { randomBytes } from 'node:crypto';
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, expect, test } from 'vitest';
import { ConfigError } from './config.ts';
import { loadConfig, NO_FLAGS } from './env.ts';
import { settingsInForce } from './in-force.ts';

const dir = mkdtempSync(join(tmpdir(), 'rookery-secret-keys-'));
afterAll(() => rmSync(dir, { recursive: true, force: true }));

const KEY = randomBytes(32);
const TEXT = KEY.toString('base64');

function file(name: string, content: string, mode = 0o600): string {
  const path = join(dir, name);
  writeFileSync(path, content);
  chmodSync(path, mode);
  return path;
}
const load = (sets: readonly string[], environment = {}) => loadConfig({ ...NO_FLAGS, sets }, environment);
async function problemsOf(...sets: readonly string[]): Promise<string> {
  const error = await load(sets).catch((thrown: unknown) => thrown);
  expect(error).toBeInstanceOf(ConfigError);
  return (error as ConfigError).message;
}

test('secretKeys is null without a setting', async () => {
  expect((await load([])).secretKeys).toBeNull();
});

test.each([
  ['a file', [`secrets.keyFile=${file('key', `${TEXT}\n`)}`], {}],
  ['the environment', [], { ROOKERY_SECRETS_KEY: TEXT }],
  ['a command', [`secrets.keyCommand=echo ${TEXT}`], {}],
  ['hexadecimal digits', [`secrets.keyFile=${file('hex', KEY.toString('hex'))}`], {}],
])('the key of secrets is read from %s', async (_, sets, environment) => {
  const config = await load(sets, environment);
  expect(config.secretKeys).toEqual([new Uint8Array(KEY)]);
  expect(JSON.stringify(settingsInForce(config))).not.toContain(TEXT);
});

test('a key file has one key on each line, the newest first', async () => {
  const older = randomBytes(32);
  const keys = file('two', `${TEXT}\n${older.toString('base64')}\n`);
  expect((await load([`secrets.keyFile=${keys}`])).secretKeys).toEqual([KEY, older].map(key => new Uint8Array(key)));
});

test('the key file belongs to the service’s own paths, which no caller may mount', async () => {
  const path = file('own', TEXT);
  expect((await load([`secrets.keyFile=${path}`])).ownPaths).toContain(path);
});

test('a key file that others can read is refused', async () => {
  expect(await problemsOf(`secrets.keyFile=${file('open', TEXT, 0o644)}`)).toContain('chmod 600');
});

test('two sources of the key are refused', async () => {
  expect(await problemsOf(`secrets.keyFile=${file('both', TEXT)}`, `secrets.key=${TEXT}`)).toContain(
    'only one of them',
  );
});

test.each([
  ['in a file', [`secrets.keyFile=${file('short', 'hunter2-hunter2')}`]],
  ['in the environment', ['secrets.key=hunter2-hunter2']],
  ['from a command', ['secrets.keyCommand=printf hunter2-hunter2']],
  ['with an invalid line', [`secrets.keyFile=${file('mixed', `${TEXT}\nhunter2-hunter2`)}`]],
])('an invalid key stops the start and is not printed: %s', async (_, sets) => {
  const problem = await problemsOf(...sets);
  expect(problem).toContain('32 bytes in Base64');
  expect(problem).not.toContain('hunter2');
  expect(problem).not.toContain(TEXT);
});

test.each([
  ['exit 3', 'exit code 3'],
  ['kill -9 $$', 'ended by SIGKILL'],
])('the error of a failed key command has its exit and not its output: %s', async (command, how) => {
  const problem = await problemsOf(`secrets.keyCommand=echo hunter2; echo hunter2 >&2; ${command}`);
  expect(problem).toContain(how);
  expect(problem).not.toContain('hunter2');
});
