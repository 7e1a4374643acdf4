import { expect, test } from 'vitest';
import type { PodSettings } from './pod-settings.ts';
import { refusedSettings, setPart } from './pod-volumes.ts';

const PLAIN: PodSettings = { nodeSelector: {}, tolerations: [], runtimeClass: null, volumes: [], volumeMounts: [] };
const WITH_CLAIM: PodSettings = {
  ...{ nodeSelector: { disk: 'ssd' }, runtimeClass: 'gvisor' },
  tolerations: [{ key: 'sandboxes', operator: 'Exists', effect: 'NoSchedule' }],
  volumes: [{ name: 'models', persistentVolumeClaim: { claimName: 'models' } }],
  volumeMounts: [{ name: 'models', mountPath: '/models/' }],
};

test('setPart returns the configured settings and omits the unset ones', () => {
  const { runtimeClass: runtimeClassName, ...rest } = WITH_CLAIM;
  expect(setPart(WITH_CLAIM)).toEqual({ ...rest, runtimeClassName });
  expect(setPart(PLAIN)).toEqual({ tolerations: [], volumes: [], volumeMounts: [] });
});

test('setPart refuses a mount at the path of a configured volume', () => {
  expect(() => setPart(WITH_CLAIM, ['/data', '/models'])).toThrow(
    'mount target /models/ has the volume models of kubernetes.pod.volumeMounts',
  );
});

test('refusedSettings refuses secret or unknown volumes and node directories outside mounts.allow', () => {
  const policy = { closed: [], allow: ['/srv'] };
  const withPath = (path: string) => ({ ...PLAIN, volumes: [{ name: 'v', hostPath: { path } }] });
  expect(refusedSettings(WITH_CLAIM, policy)).toBeNull();
  expect(refusedSettings(withPath('/srv/a'), policy)).toBeNull();
  expect(refusedSettings(withPath('/home'), policy)).toMatch(/^kubernetes\.pod: .*\/home/);
  expect(refusedSettings({ ...PLAIN, volumes: [{ name: 'v', secret: { secretName: 's' } }] }, policy)).toBe(
    'kubernetes.pod: volumes: the volume v is a secret, which is not given to sandboxes: expected hostPath, persistentVolumeClaim, emptyDir, ephemeral, downwardAPI',
  );
  expect(refusedSettings({ ...PLAIN, volumeMounts: [{ name: 'v', mountPath: '/v' }] }, policy)).toBe(
    'kubernetes.pod: volumeMounts: there is no volume v in volumes',
  );
});
