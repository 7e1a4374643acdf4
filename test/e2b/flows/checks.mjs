/**
 * Runs the checks of a flow and prints a line of JSON for each result, as `checks.py` does.
 * `test/e2b/flow.ts` reads the titles to register a test for each.
 */
import { inspect } from 'node:util';

const LIMIT_MS = 100_000;
const MARK = '\x1e';
const checks = [];

/** Registers a check; its body may be asynchronous. */
export function check(title, body) {
  checks.push({ title, body });
}

/** Runs all checks, one after another, and exits. */
export async function runChecks() {
  for (const { title, body } of checks) {
    const startedAt = Date.now();
    let timer;
    const limit = new Promise((_, reject) => {
      timer = setTimeout(() => reject(new Error(`the check took longer than ${LIMIT_MS / 1000} s`)), LIMIT_MS);
    });
    const error = await Promise.race([limit, Promise.resolve().then(body)]).then(
      () => '',
      failure => inspect(failure, { depth: 4 }),
    );
    clearTimeout(timer);
    console.log(MARK + JSON.stringify({ title, error, seconds: (Date.now() - startedAt) / 1000 }));
  }
  process.exit(0);
}

/** Waits until a condition is true, and returns its value. */
export async function eventually(condition, seconds = 30) {
  const until = Date.now() + seconds * 1000;
  for (;;) {
    const value = await condition();
    if (value) return value;
    if (Date.now() > until) throw new Error(`the condition did not become true within ${seconds} s`);
    await new Promise(resolve => setTimeout(resolve, 50));
  }
}
