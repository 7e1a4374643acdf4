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

test('a directory that was asked for is one that the init container makes in a volume, and so the user’s', () => {
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

test('a pod for which nothing was asked has nothing to be made', () => {
  expect(placesOf({}).made).toBeUndefined();
  expect(placesOf({ emptyDirs: ['/opt/function'] }).made).toBeUndefined();
});

const SECRET_MOUNT = { name: 'rookery-secret', mountPath: POD.secretDir, readOnly: true };

test.each(['ours', 'foreign', 'beside'] as const)(
  'the Secret of the installation is mounted in our init container alone when images are foreign (%s)',
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

test('an init image that is not ours writes the files of the manager alone when a pool names one', () => {
  const { spec } = podTemplate({ ...OPTIONS, initImage: 'theirs:2' });
  const [theirs, ours] = spec.initContainers ?? [];
  expect(theirs).toMatchObject({ image: 'theirs:2', volumeMounts: [{ name: 'rookery', mountPath: POD.home }] });
  expect(ours).toMatchObject({ image: 'ours:1', command: [...POD.keyCommand] });
});

test('our init container brings the files too when the init image is ours', () => {
  for (const initImage of ['', 'ours:1']) {
    const { spec } = podTemplate({ ...OPTIONS, initImage });
    expect(spec.initContainers).toMatchObject([{ image: 'ours:1', command: [...POD.installCommand] }]);
  }
});

test('the volume that our image declares is covered by one that cannot be written', () => {
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
