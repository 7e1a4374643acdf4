import { relative } from 'node:path';
import { BaseSequencer, type TestSpecification } from 'vitest/node';
import { GROUPS, groupOf } from '../groups.ts';
import { currentScope } from '../scope.ts';

/**
 * Small files that take long. Without earlier runs Vitest starts with the largest files. It would run these
 * files last, when the other workers are idle.
 */
export const LONGEST: readonly string[] = [
  'test/runtimes/python-units.test.ts',
  'test/sandbox/ordinary-user.test.ts',
  'test/docs/commands.test.ts',
  'test/sandbox/kubernetes-access.test.ts',
  'test/kubernetes/chart-replicas.test.ts',
  'test/kubernetes/chart-installation.test.ts',
  'test/e2e/function-soak.test.ts',
  'test/sandbox/docker-access.test.ts',
  'test/e2e/cluster-history.test.ts',
  'test/sandbox/docker.test.ts',
  'test/e2e/history.test.ts',
  'test/sandbox/kubernetes.test.ts',
  'src/storage/stores.test.ts',
  'src/cluster/feed.test.ts',
  'test/e2e/agent-survival.test.ts',
  'src/cluster/membership.test.ts',
  'src/cluster/shards.test.ts',
  'src/storage/postgres/postgres-faults.test.ts',
  'src/cluster/fence.test.ts',
  'src/functions/version-scaler-model.test.ts',
];

/** Files that use a part with a small capacity: the one-node cluster or a Docker daemon. */
const CROWDED: readonly RegExp[] = [/^test\/.*docker/, /^test\/(.*kubernetes|pools\/)/];
/** Share of the order over which crowded files are spread. At the end each would wait for the others. */
const SPREAD_OVER = 0.8;

/** Orders files: slow ones first, and files that use the same part of the machine far apart. */
export function inOrder<File>(files: readonly File[], pathOf: (file: File) => string): readonly File[] {
  const long = LONGEST.flatMap(path => files.filter(file => pathOf(file) === path));
  const all = [...long, ...files.filter(file => !long.includes(file))];
  return CROWDED.reduce<readonly File[]>((order, part) => spread(order, file => part.test(pathOf(file))), all);
}

function spread<File>(files: readonly File[], isOne: (file: File) => boolean): readonly File[] {
  const some = files.filter(isOne);
  const order = files.filter(file => !isOne(file));
  const gap = Math.max(1, Math.floor((files.length * SPREAD_OVER) / Math.max(1, some.length)));
  for (const [index, file] of some.entries()) order.splice(index * gap, 0, file);
  return order;
}

/**
 * Orders files by group for `npm test`, so that the line of a group appears when its files are done. Files
 * that share a worker are adjacent, also across two groups. Vitest ends a shared worker, with its loaded
 * modules, when the next file needs its own worker.
 */
export function byGroup<File>(
  files: readonly File[],
  pathOf: (file: File) => string,
  isShared: (file: File) => boolean,
): readonly File[] {
  const order: File[] = [];
  for (const group of GROUPS) {
    const own = files.filter(file => groupOf(pathOf(file)) === group);
    const last = order.at(-1);
    const isFirst = (file: File) => isShared(file) === (last !== undefined && isShared(last));
    order.push(...own.filter(isFirst), ...own.filter(file => !isFirst(file)));
  }
  return order;
}

export class FileOrder extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const pathOf = ({ moduleId }: TestSpecification) => relative(this.ctx.config.root, moduleId);
    const stageOf = ({ project }: TestSpecification) => project.config.sequence.groupOrder;
    const isShared = ({ project }: TestSpecification) => !project.config.isolate;
    const sorted = inOrder(await super.sort(files), pathOf);
    const order = currentScope() === 'quick' ? byGroup(sorted, pathOf, isShared) : sorted;
    return order.toSorted((one, other) => stageOf(one) - stageOf(other));
  }
}
