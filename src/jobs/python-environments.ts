import { createHash } from 'node:crypto';
import { type BuildOutput, Layers, type LayersOptions, type Recipe } from '../builds/layers.ts';
import { VENV_SCRIPT } from '../builds/python.ts';
import type { PipRequirements } from '../core/runtime-env.ts';
import type { JobPython, PlacedEnvironment } from './job-sandbox.ts';
import { ENVIRONMENT, type JobPaths } from './paths.ts';

export interface PythonEnvironmentsOptions extends Omit<LayersOptions, 'directory' | 'inside'> {
  readonly paths: JobPaths;
  /** Variables of pip, with which it reaches its index. */
  readonly environment: Readonly<Record<string, string>>;
}

/** Name of the requirements file. A user's list cannot include it. */
const LIST = 'rookery-packages.txt';

/** Provides virtual environments of jobs: layers by tenant, interpreter and requirements. */
export class PythonEnvironments {
  readonly #options: PythonEnvironmentsOptions;
  readonly #layers: Layers;

  constructor(options: PythonEnvironmentsOptions) {
    const { paths } = options;
    const inside = (source: string, target: string) => paths.inside(source, target);
    this.#options = options;
    this.#layers = new Layers({
      ...options,
      directory: paths.environments,
      inside,
    });
  }

  start(): Promise<void> {
    return this.#layers.start();
  }

  close(): void {
    this.#layers.close();
  }

  collect(): Promise<void> {
    return this.#layers.collect();
  }

  /**
   * Returns the environment with these requirements, and builds it when it does not exist. Fails with
   * `failed_precondition` when it cannot be built. Each success must be followed by `release` with the same
   * arguments.
   */
  async get(tenant: string, pip: PipRequirements, python: JobPython, output: BuildOutput): Promise<PlacedEnvironment> {
    this.protect(tenant, pip, python);
    try {
      const path = await this.#layers.get(this.#recipeOf(tenant, pip, python), output);
      const inside = this.#options.paths.inside(path, ENVIRONMENT);
      return { path: inside, mount: { source: path, target: inside, readonly: true } };
    } catch (error) {
      this.release(tenant, pip, python);
      throw error;
    }
  }

  /** Holds an environment for a job that continues after a restart. `release` ends the hold. */
  protect(tenant: string, pip: PipRequirements, python: JobPython): void {
    this.#layers.protect(keyOf(tenant, pip, python));
  }

  release(tenant: string, pip: PipRequirements, python: JobPython): void {
    this.#layers.release(keyOf(tenant, pip, python));
  }

  #recipeOf(tenant: string, pip: PipRequirements, python: JobPython): Recipe {
    const { packages, pipVersion, check, options } = pip;
    return {
      key: keyOf(tenant, pip, python),
      tenant,
      tool: 'pip',
      target: ENVIRONMENT,
      files: { [LIST]: `${packages.join('\n')}\n` },
      mounts: python.mounts,
      binDirs: python.binDirs,
      env: this.#options.environment,
      argv: (layer, files) => [
        ...['/bin/sh', '-c', VENV_SCRIPT, 'sh', python.basePath, layer, files],
        ...[pipVersion, check ? 'yes' : 'no', '', LIST, ...options],
      ],
      errorLines: 1,
    };
  }
}

function keyOf(tenant: string, pip: PipRequirements, python: JobPython): string {
  const { packages, check, pipVersion, options } = pip;
  const all = JSON.stringify([tenant, python.path, python.version, [...packages].sort(), check, pipVersion, options]);
  return createHash('sha256').update(all).digest('hex').slice(0, 40);
}
