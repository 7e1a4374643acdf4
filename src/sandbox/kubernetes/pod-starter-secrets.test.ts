import { expect, test } from 'vitest';
import type { SandboxSpec } from '../driver.ts';
import { PodStarter, type StarterOptions } from './pod-starter.ts';

/** A pod object shows its variables to all users who may read pods. */
test('a create with a secret for the command of an image in a pod is refused before anything is created', async () => {
  // This starter has no cluster, so any request to a cluster would fail the test.
  const starter = new PodStarter({} as StarterOptions);
  const spec = {
    ...{ command: { kind: 'image' }, env: { KEY: 'hunter2' }, secretVariables: ['KEY'], mounts: [] },
    rootfs: { type: 'image', imageUrl: 'any', user: '' },
  } as unknown as SandboxSpec;
  const start = starter.start(spec, new AbortController().signal);
  await expect(start).rejects.toMatchObject({ code: 'failed_precondition' });
  await expect(start).rejects.toThrow('the variables KEY are secrets');
  await expect(start).rejects.not.toThrow('hunter2');
});
