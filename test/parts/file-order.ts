import { relative } from 'node:path';
import { BaseSequencer, type TestSpecification } from 'vitest/node';

/**
 * Files that take long although they are small: Vitest, which knows nothing of earlier runs on a fresh clone, begins with the largest, and
 * would end with these while the other workers have nothing to do any more.
 */
export const LONGEST: readonly string[] = [
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
  'src/storage/postgres-faults.test.ts',
  'src/cluster/fence.test.ts',
  'src/functions/service-model.test.ts',
];

/** What bears few files at once: the one-node cluster, and a daemon of docker. */
const CROWDED: readonly RegExp[] = [/^test\/.*docker/, /^test\/(.*kubernetes|pools\/)/];
/** They stand in this part of the order: at the end each would wait for the others. */
const SPREAD_OVER = 0.8;

/** Which file begins when: the long ones first, and those that use the same part of the machine far from each other. */
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

export class FileOrder extends BaseSequencer {
  override async sort(files: TestSpecification[]): Promise<TestSpecification[]> {
    const pathOf = ({ moduleId }: TestSpecification) => relative(this.ctx.config.root, moduleId);
    const groupOf = ({ project }: TestSpecification) => project.config.sequence.groupOrder;
    const sorted = inOrder(await super.sort(files), pathOf);
    return sorted.toSorted((one, other) => groupOf(one) - groupOf(other));
  }
}
