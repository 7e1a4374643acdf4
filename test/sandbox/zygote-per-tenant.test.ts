import { afterEach, expect, test } from 'vitest';
import { Channel } from '../../src/runtime/channel.ts';
import { describeWith } from '../probe.ts';
import { call, initOf } from '../suites/sandbox-driver.ts';
import { ProcessFixture } from './process-fixture.ts';

const WAIT_MS = 30_000;

describeWith(['namespaces'], 'zygotes of tenants', () => {
  let fixture: ProcessFixture | undefined;
  afterEach(() => fixture?.dispose());

  /** Returns the hash seed that an instance of a tenant has. */
  async function hashOf(under: ProcessFixture, tenant: string): Promise<string> {
    const spec = under.spec({ tenant });
    const { endpoint } = await under.driver().start(spec, AbortSignal.timeout(WAIT_MS));
    const channel = await Channel.open(endpoint, spec.secret, AbortSignal.timeout(WAIT_MS));
    try {
      const init = initOf(spec, under.codePath, 'behaviours.attempt');
      expect(await channel.initialize(init, AbortSignal.timeout(WAIT_MS))).toMatchObject({ ok: true });
      return String(await call(channel, { code: "hash('x')" }));
    } finally {
      channel.close();
    }
  }

  test('instances of two tenants share the hash seed by default', async () => {
    fixture = new ProcessFixture();
    expect(await hashOf(fixture, 'a')).toBe(await hashOf(fixture, 'b'));
  });

  test('instances of two tenants have different hash seeds with zygotePerTenant', async () => {
    fixture = new ProcessFixture({ zygotePerTenant: true });
    const first = await hashOf(fixture, 'a');
    expect(await hashOf(fixture, 'b')).not.toBe(first);
    expect(await hashOf(fixture, 'a')).toBe(first);
  });
});
