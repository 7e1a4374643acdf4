import { expect, test } from 'vitest';
import { POD } from './manager.ts';
import { type PodTemplateOptions, podTemplate } from './pod-template.ts';

const OPTIONS: PodTemplateOptions = {
  installationId: 'abcdefgh-1',
  secretName: 'pods',
  labels: {},
  image: 'ours:1',
  ourImage: 'ours:1',
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

test('a requested directory is created by the init container in a volume, and so belongs to the user', () => {
  const { mounts, made, inInit, volumes } = placesOf({ emptyDirs: ['/code', '/home/somebody'] });
  const code = mounts.find(({ mountPath }) => mountPath === '/code');
  const there = inInit.find(({ name }) => name === code?.name);
  expect(volumes).toContainEqual({ name: code?.name, emptyDir: {} });
  expect(made?.split(':')).toContain(`${there?.mountPath}/${code?.subPath}`);
  expect(made?.split(':')).toHaveLength(2);
});

test('a directory below a requested one, or below one that every pod has, gets no volume of its own', () => {
  const { mounts, made } = placesOf({ emptyDirs: ['/code', '/code/lib', '/opt/function/code', '/tmp/x'] });
  const paths = mounts.map(({ mountPath }) => mountPath);
  expect(paths).toContain('/code');
  for (const path of ['/code/lib', '/opt/function/code', '/tmp/x']) expect(paths).not.toContain(path);
  expect(made?.split(':')).toHaveLength(1);
});

test('a pod without requested directories has none to create', () => {
  expect(placesOf({}).made).toBeUndefined();
  expect(placesOf({ emptyDirs: ['/opt/function'] }).made).toBeUndefined();
});

const SECRET_MOUNT = { name: 'rookery-secret', mountPath: POD.secretDir, readOnly: true };

test.each(['ours', 'foreign', 'beside'] as const)(
  'the Secret of the installation is mounted only in the init container of Rookery when images are foreign (%s)',
  mode => {
    const { spec } = podTemplate({ ...OPTIONS, mode, image: 'theirs:1', initImage: 'theirs:2' });
    const containers = [...(spec.initContainers ?? []), ...spec.containers];
    const withSecret = containers.filter(({ volumeMounts = [] }) =>
      volumeMounts.some(({ name }) => name === 'rookery-secret'),
    );
    expect(withSecret.map(({ image, volumeMounts }) => [image, volumeMounts])).toEqual([
      ['ours:1', expect.arrayContaining([SECRET_MOUNT])],
    ]);
    for (const { env = [], envFrom } of containers) {
      expect(envFrom).toBeUndefined();
      expect(env.filter(({ valueFrom }) => valueFrom?.secretKeyRef !== undefined)).toEqual([]);
    }
  },
);

test('a foreign init image of a pool writes only the files of the manager', () => {
  const { spec } = podTemplate({ ...OPTIONS, initImage: 'theirs:2' });
  const [theirs, ours] = spec.initContainers ?? [];
  expect(theirs).toMatchObject({ image: 'theirs:2', volumeMounts: [{ name: 'rookery', mountPath: POD.home }] });
  expect(ours).toMatchObject({ image: 'ours:1', command: [...POD.keyCommand] });
});

test('a single init container of Rookery writes the files and the key when the init image is Rookery’s', () => {
  for (const initImage of ['', 'ours:1']) {
    const { spec } = podTemplate({ ...OPTIONS, initImage });
    expect(spec.initContainers).toMatchObject([{ image: 'ours:1', command: [...POD.installCommand] }]);
  }
});

test('the volume that the image of Rookery declares is covered by a read-only one', () => {
  const covered = { name: 'rookery', mountPath: '/var/lib/rookery', readOnly: true };
  expect(placesOf({}).mounts).toContainEqual(covered);
  expect(
    podTemplate({ ...OPTIONS, mode: 'beside', image: 'theirs:1' }).spec.containers[1]?.volumeMounts,
  ).toContainEqual(covered);
  expect(placesOf({ mode: 'foreign', image: 'theirs:1' }).mounts).not.toContainEqual(covered);
  const own = { name: 'data', mountPath: '/var/lib/rookery' };
  expect(placesOf({ volumeMounts: [own] }).mounts.filter(({ mountPath }) => mountPath === own.mountPath)).toEqual([
    own,
  ]);
});
