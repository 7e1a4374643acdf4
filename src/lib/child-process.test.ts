import { execFileSync } from 'node:child_process';
import { getPriority, setPriority } from 'node:os';
import { join } from 'node:path';
import { expect, test } from 'vitest';

const HERE = import.meta.dirname;

/** Program that calls `serveFirst` and prints its own priority and those of four children. */
const SERVES = `
import { promisify } from 'node:util';
import { getPriority } from 'node:os';
import { serveFirst } from ${JSON.stringify(join(HERE, 'child-process.ts'))};
import { execFile, execFileSync, spawn } from ${JSON.stringify(join(HERE, 'child-process.ts'))};
const ASK = ['-p', 'require("node:os").getPriority()'];
const own = { didChange: serveFirst(), before: getPriority() };
const spawned = spawn(process.execPath, ASK).stdout.setEncoding('utf8').toArray();
const called = new Promise((resolve, reject) => {
  execFile(process.execPath, ASK, (error, out) => (error ? reject(error) : resolve(out)));
});
const promised = promisify(execFile)(process.execPath, ASK).then(({ stdout }) => stdout);
const children = [await spawned, await called, await promised, execFileSync(process.execPath, ASK, { encoding: 'utf8' })];
console.log(JSON.stringify({ ...own, after: getPriority(), children: children.map(Number) }));
`;

function served(nice: number): unknown {
  const argv = ['-n', String(nice), process.execPath, '--import', 'tsx', '--input-type=module', '-e', SERVES];
  return JSON.parse(execFileSync('nice', argv, { encoding: 'utf8' }));
}

/** Returns true if this process has priority 0 and may raise its priority. */
function mayComeFirst(): boolean {
  if (getPriority() !== 0) return false;
  try {
    setPriority(-1);
    setPriority(0);
    return true;
  } catch {
    return false;
  }
}

test.runIf(mayComeFirst())('serveFirst gives its thread priority -10 and its children priority 0', () => {
  expect(served(0)).toEqual({ didChange: true, before: -10, after: -10, children: [0, 0, 0, 0] });
});

test('serveFirst keeps a priority that the operator set before the start', () => {
  const nice = Math.min(19, getPriority() + 1);
  expect(served(1)).toEqual({ didChange: false, before: nice, after: nice, children: [nice, nice, nice, nice] });
});
