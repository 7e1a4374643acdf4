import { expect, test } from 'vitest';
import { POD } from './manager.ts';
import { type PodTemplateOptions, podTemplate } from './pod-template.ts';

const OPTIONS: PodTemplateOptions = {
  installationId: 'abcdefgh-1',
  labels: {},
  image: 'ours:1',
  initImage: 'ours:1',
  mode: 'ours',
  resources: { requests: { cpu: '100m', memory: '64Mi' }, limits: { cpu: '100m', memory: '64Mi' } },
  restartPolicy: 'Never',
};

function placesOf(options: Partial<PodTemplateOptions>) {
  const { spec } = podTemplate({ ...OPTIONS, ...options });
  const [init] = spec.initContainers ?? [];
  const mounts = spec.containers[0]?.volumeMounts ?? [];
  const made = init?.env?.find(({ name }) => name === POD.directoriesVariable)?.value;
  return { mounts, made, inInit: init?.volumeMounts ?? [], volumes: spec.volumes ?? [] };
}

test('a directory that was asked for is one that the init container makes in a volume, and so the user’s', () => {
  const { mounts, made, inInit, volumes } = placesOf({ emptyDirs: ['/code', '/home/somebody'] });
  const code = mounts.find(({ mountPath }) => mountPath === '/code');
  const there = inInit.find(({ name }) => name === code?.name);
  expect(volumes).toContainEqual({ name: code?.name, emptyDir: {} });
  expect(made?.split(':')).toContain(`${there?.mountPath}/${code?.subPath}`);
  expect(made?.split(':')).toHaveLength(2);
});

test('what is below a directory that was asked for, or below one of every pod, is no volume of its own', () => {
  const { mounts, made } = placesOf({ emptyDirs: ['/code', '/code/lib', '/opt/function/code', '/tmp/x'] });
  const paths = mounts.map(({ mountPath }) => mountPath);
  expect(paths).toContain('/code');
  for (const path of ['/code/lib', '/opt/function/code', '/tmp/x']) expect(paths).not.toContain(path);
  expect(made?.split(':')).toHaveLength(1);
});

test('a pod for which nothing was asked has nothing to be made', () => {
  expect(placesOf({}).made).toBeUndefined();
  expect(placesOf({ emptyDirs: ['/opt/function'] }).made).toBeUndefined();
});
