import type { InstanceSpec, MountSpec } from '../core/instance.ts';
import { HOST_PATH } from './sandbox-spec.ts';

/** Installed packages at their place in a sandbox. */
export interface PlacedLayer {
  readonly mount: MountSpec;
  /** Directory of the layer's programs, inside the sandbox. */
  readonly binDir: string;
  readonly env: Readonly<Record<string, string>>;
  /** Directory of the Python packages, inside the sandbox. */
  readonly pythonPath?: string;
}

/** Layers of installed packages. `user` is the id of a sandbox that uses one. */
export interface LayerPlaces {
  /**
   * Returns the spec with its layer, which stays in use until `release`. Fails with `failed_precondition`.
   */
  place(spec: InstanceSpec, user: string): Promise<InstanceSpec>;
  release(user: string): Promise<void>;
}

/**
 * Returns the spec with a layer. The caller's own variables take precedence. A variable that is a secret is
 * not extended.
 */
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
      // An image defines its own PATH.
      ...(spec.rootfs.type === 'host' && typeof PATH === 'string' ? { PATH: `${binDir}:${PATH}` } : {}),
    },
  };
}
