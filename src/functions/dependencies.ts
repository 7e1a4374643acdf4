import type { CodeSubject } from '../builds/code-dependencies.ts';
import type { ExecutorDefaults } from '../core/agent.ts';
import { CODE_TARGET } from '../core/code-package.ts';
import type { FunctionSpec } from '../core/function.ts';

/**
 * Returns the code of a version as its instances will see it. Code in an object store is not read here: the
 * first instance reads it.
 */
export function subjectOf(tenant: string, spec: FunctionSpec, { defaultSandboxType }: ExecutorDefaults): CodeSubject {
  const { storageType, codePath, rootfs, runtime, sandboxType } = spec;
  const mounts = rootfs?.mounts ?? [];
  const isPlaced = storageType !== '';
  const code = [{ source: codePath, target: CODE_TARGET, readonly: true }];
  return {
    tenant,
    runtime,
    sandboxType: sandboxType === '' ? defaultSandboxType : sandboxType,
    codePath: isPlaced ? CODE_TARGET : codePath,
    mounts: isPlaced ? [...mounts, ...code] : mounts,
    dependencies: storageType === 's3' ? '' : spec.dependencies,
  };
}
