import type { InstanceSpec } from '../core/instance.ts';
import type { MountSpec } from '../core/mount.ts';
import { HOST_PATH } from './sandbox-spec.ts';

/** Installed packages as a sandbox finds them. */
export interface PlacedLayer {
  readonly mount: MountSpec;
  /** Inside: its programs. */
  readonly binDir: string;
  readonly env: Readonly<Record<string, string>>;
  /** Inside: where Python finds its packages. */
  readonly pythonPath?: string;
}

/** What is installed for code. A user is a sandbox that has it. */
export interface LayerPlaces {
  /** The spec with it, until `release`. Fails with `failed_precondition`. */
  place(spec: InstanceSpec, user: string): Promise<InstanceSpec>;
  release(user: string): Promise<void>;
}

/** The spec with a layer: what the caller sets itself comes before it. A variable that is a secret stays as it is. */
export function withLayer(spec: InstanceSpec, { mount, binDir, env, pythonPath = '' }: PlacedLayer): InstanceSpec {
  const { PYTHONPATH = '', PATH = HOST_PATH } = spec.env;
  const paths = typeof PYTHONPATH === 'string' ? [PYTHONPATH, pythonPath].filter(path => path !== '') : [];
  return {
    ...spec,
    platformMounts: [...(spec.platformMounts ?? []), mount],
    env: {
      ...env,
      ...spec.env,
      ...(paths.length === 0 ? {} : { PYTHONPATH: paths.join(':') }),
      // An image says itself where its programs are.
      ...(spec.rootfs.type === 'host' && typeof PATH === 'string' ? { PATH: `${binDir}:${PATH}` } : {}),
    },
  };
}
