import { afterEach, beforeEach, expect, test, vi } from 'vitest';
import { SPEC } from '../../../test/http/frontend.ts';
import { MemoryInstances, newInstance } from '../../../test/http/memory-instances.ts';
import { unavailable } from '../../core/error.ts';
import type { TemplateBuild, TemplateOutcome } from '../../registry/templates.ts';
import type { CommittedImage } from '../../sandbox/driver.ts';
import { NEW_TEMPLATE } from './template-builds.ts';
import { BUILD_LABEL, INTERRUPTED, TemplateCleanup } from './template-cleanup.ts';

let images: CommittedImage[];
let builds: TemplateBuild[];
/** Images that the daemon refuses to remove. */
let busy: Set<string>;
let instances: MemoryInstances;
let cleanup: TemplateCleanup;
let lists = 0;
let refused: string[];
const runningHere = new Set<string>();

const imageOf = (build: string): CommittedImage => ({ id: `id-${build}`, name: `name-${build}`, build });
const buildOf = (id: string, changes: Partial<TemplateBuild>): TemplateBuild => ({
  ...{ id, tenant: 'default', templateId: 't', name: 'n', status: 'ready', reason: '', step: '', tags: {}, sha256: '' },
  ...{
    spec: { ...NEW_TEMPLATE, cpuMillis: null, memoryMb: null },
    createdAtMs: 0,
    updatedAtMs: Date.now(),
    ...changes,
  },
});
const left = () => images.map(({ build }) => build);

beforeEach(() => {
  [images, builds, busy, lists, refused] = [[], [], new Set(), 0, []];
  runningHere.clear();
  instances = new MemoryInstances();
  const end = async (_tenant: string, id: string, outcome: TemplateOutcome) => {
    const reason = outcome.status === 'error' ? outcome.reason : '';
    builds = builds.map(build => (build.id === id ? { ...build, status: outcome.status, reason } : build));
    return true;
  };
  const store = {
    has: async () => false,
    commit: async () => '',
    committed: async () => {
      lists += 1;
      return images;
    },
    remove: async (id: string) => {
      if (busy.has(id)) refused.push(id);
      if (busy.has(id)) return false;
      images = images.filter(image => image.id !== id);
      return true;
    },
  };
  cleanup = new TemplateCleanup({
    instances,
    images: { ofDriver: async () => store },
    templates: { openBuilds: async () => builds, end },
    isRunningHere: id => runningHere.has(id),
  });
});
afterEach(async () => {
  await cleanup.close();
});

test('a pass keeps images of builds that run or have a tag, and removes all others', async () => {
  images = ['tagged', 'untagged', 'failed', 'deleted', 'building'].map(imageOf);
  builds = [
    buildOf('tagged', { tags: { default: 1 } }),
    buildOf('untagged', {}),
    buildOf('failed', { status: 'error' }),
    buildOf('building', { status: 'building' }),
  ];
  cleanup.run();
  await vi.waitFor(() => expect(left()).toEqual(['tagged', 'building']));
});

test('a pass keeps the image of a sandbox, and images that the daemon still needs', async () => {
  images = ['of-sandbox', 'of-image'].map(imageOf);
  busy.add('id-of-image');
  const rootfs = { type: 'image', imageUrl: 'name-of-sandbox', user: '' } as const;
  const sandbox = instances.put(newInstance({ ...SPEC, template: 'n', rootfs }));
  cleanup.run();
  await vi.waitFor(() => expect(refused).toEqual(['id-of-image']));
  busy.clear();
  cleanup.run();
  await vi.waitFor(() => expect(left()).toEqual(['of-sandbox']));
  await instances.delete('default', sandbox.id, 0);
  cleanup.run();
  await vi.waitFor(() => expect(left()).toEqual([]));
});

test('a build of an earlier process ends with its sandbox, and loses its image', async () => {
  images = [imageOf('abandoned'), imageOf('elsewhere')];
  builds = ['abandoned', 'elsewhere', 'here', 'old'].map(id => buildOf(id, { status: 'building' }));
  builds = builds.map(build => (build.id === 'old' ? { ...build, updatedAtMs: Date.now() - 61_000 } : build));
  runningHere.add('here');
  const labelled = (id: string) => newInstance({ ...SPEC, name: id, template: 'n', labels: { [BUILD_LABEL]: id } });
  for (const id of ['abandoned', 'here']) instances.put(labelled(id));
  cleanup.run();
  await vi.waitFor(() => expect(left()).toEqual(['elsewhere']));
  const ended = builds.filter(({ status }) => status === 'error');
  expect(ended.map(({ id, reason }) => [id, reason])).toEqual([
    ['abandoned', INTERRUPTED.reason],
    ['old', INTERRUPTED.reason],
  ]);
  expect(instances.liveSandboxes()).toHaveLength(1);
});

test('a sandbox with the label of a build of another tenant ends no build', async () => {
  builds = [buildOf('theirs', { status: 'building', tenant: 'other' })];
  instances.put(newInstance({ ...SPEC, template: 'n', labels: { [BUILD_LABEL]: 'theirs' } }));
  cleanup.run();
  await vi.waitFor(() => expect(lists).toBe(1));
  await cleanup.close();
  expect(builds[0]?.status).toBe('building');
  expect(instances.liveSandboxes()).toHaveLength(1);
});

test('builds of an earlier process end when the daemon does not answer', async () => {
  builds = [buildOf('old', { status: 'building', updatedAtMs: Date.now() - 61_000 })];
  const end = vi.fn(async () => true);
  const committed = async () => {
    throw unavailable('no daemon answers');
  };
  const store = { has: async () => false, commit: async () => '', committed, remove: async () => true };
  const other = new TemplateCleanup({
    instances,
    images: { ofDriver: async () => store },
    templates: { openBuilds: async () => builds, end },
    isRunningHere: () => false,
  });
  other.run();
  await vi.waitFor(() => expect(end).toHaveBeenCalledWith('default', 'old', INTERRUPTED));
  await other.close();
});
