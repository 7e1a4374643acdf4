import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterAll, beforeAll, expect, test } from 'vitest';
import { Served } from '../../scripts/served.ts';
import { describeWith } from '../probe.ts';
import { askEverything } from './schemathesis.ts';

const TIMEOUT_MS = 600_000;
/** Message of an answer whose fault is the service's own. The cause is in the log. */
const FAULT = /internal error[:,] the log has it under trace id/;

describeWith(['schemathesis'], 'OpenAPI documents under generated requests', () => {
  let served: Served;
  let scratch: string;

  beforeAll(async () => {
    scratch = mkdtempSync(join(tmpdir(), 'rookery-openapi-'));
    // The service accepts and lists generated jobs. The limit bounds how many run, and the server removes all
    // of them at its end.
    served = await Served.start({ args: ['--set', 'jobs.maxRunning=1'] });
  });
  afterAll(async () => {
    await served.remove();
    rmSync(scratch, { recursive: true });
  });

  async function holds(name: 'meta' | 'frontend', url: string): Promise<void> {
    const { code, output, traffic } = await askEverything(name, url, scratch);
    expect(code, output).toBe(0);
    const answers = readFileSync(traffic, 'utf8');
    expect(answers, 'the answers are not readable').toContain('\\"code\\"');
    expect(answers).not.toMatch(FAULT);
  }

  test('the meta_service answers as its document declares', () => holds('meta', served.metaUrl), TIMEOUT_MS);

  test('the frontend answers as its document declares', () => holds('frontend', served.frontendUrl), TIMEOUT_MS);
});
