import { mkdir, readdir } from 'node:fs/promises';
import { basename, dirname, join } from 'node:path';
import { type UnpackLimits, unpack } from '../code/unpack.ts';
import { failedPrecondition, invalidRequest, messageOf } from '../core/error.ts';
import type { MountSpec } from '../core/instance.ts';
import type { Job } from '../core/job.ts';
import type { FileSource } from '../core/runtime-env.ts';
import type { OpenedPath } from '../lib/opened-path.ts';
import type { Removals } from '../lib/removals.ts';
import type { TenantDisk } from '../lib/tenant-disk.ts';
import { diskUsage } from '../lib/tenant-disk.ts';
import type { JobPackages } from './packages.ts';
import { type JobPaths, MODULES, WORKSPACE } from './paths.ts';

export interface JobFilesOptions {
  readonly paths: JobPaths;
  readonly packages: JobPackages;
  readonly removals: Removals;
  readonly limits: UnpackLimits;
  readonly disk: TenantDisk;
  /** Opens a path of the host that a caller may use. Fails for other paths. null: all are forbidden. */
  readonly openHostPath: ((path: string) => Promise<OpenedPath>) | null;
  /** True if jobs see directories of this machine. Archives are unpacked in any case. */
  readonly takesHostDirectories: boolean;
}

/** Mounts and paths with which a job finds its files. */
export interface PlacedFiles {
  /** Mounts of directories that the caller named. */
  readonly mounts: readonly MountSpec[];
  readonly platformMounts: readonly MountSpec[];
  /** Path inside the sandbox. */
  readonly workingDir: string;
  readonly pythonPath: readonly string[];
}

/** Gives each job its own working directory with the files that it brought. */
export class JobFiles {
  readonly #options: JobFilesOptions;

  constructor(options: JobFilesOptions) {
    this.#options = options;
  }

  /**
   * Checks a job before it is accepted. Fails with `invalid_request` when it names a forbidden path of the
   * host.
   */
  async check(job: Pick<Job, 'spec'>): Promise<void> {
    const { workingDir, pyModules } = job.spec.runtimeEnv;
    for (const source of [workingDir, ...pyModules]) {
      if (source?.kind === 'host') await (await this.#openHost(source.path)).close();
    }
  }

  /**
   * Makes the files of a job. Fails with `failed_precondition` or `invalid_request`; `remove` then removes
   * partial files.
   */
  async place(job: Job): Promise<PlacedFiles> {
    const { paths } = this.#options;
    const root = paths.workOf(job.sequence);
    await this.remove(job.sequence);
    const { workingDir, pyModules } = job.spec.runtimeEnv;
    const work = await this.#put(workingDir, job.tenant, join(root, 'work'));
    const mounts: MountSpec[] = [];
    const platformMounts: MountSpec[] = [];
    const workspace = paths.inside(work.path, WORKSPACE);
    (work.isHost ? mounts : platformMounts).push({ source: work.path, target: workspace, readonly: false });
    const pythonPath = [workspace];
    for (const [index, source] of pyModules.entries()) {
      const module = await this.#put(source, job.tenant, join(root, 'modules', String(index)));
      const target = `${MODULES}/${index}`;
      if (module.isHost) {
        // The directory is the module itself, and Python searches its parent.
        const inside = paths.inside(module.path, `${target}/${basename(module.path)}`);
        mounts.push({ source: module.path, target: inside, readonly: true });
        pythonPath.push(dirname(inside));
      } else {
        const inside = paths.inside(module.path, target);
        platformMounts.push({ source: module.path, target: inside, readonly: false });
        pythonPath.push(inside);
      }
    }
    if (platformMounts.length > 0 && (workingDir !== null || pyModules.length > 0))
      await this.#options.disk.acquire(job.tenant, root, root, () => diskUsage(root));
    return { mounts, platformMounts, workingDir: workspace, pythonPath };
  }

  /** Removes the files of a job. Never rejects. */
  async remove(sequence: number): Promise<void> {
    const root = this.#options.paths.workOf(sequence);
    await this.#options.removals.remove(root);
    this.#options.disk.release(root, root);
  }

  /** Removes the files of all other jobs. Never rejects. */
  async sweep(open: ReadonlySet<number>): Promise<void> {
    for (const name of await readdir(this.#options.paths.work).catch(() => [])) {
      if (!open.has(Number(name))) await this.#options.removals.remove(join(this.#options.paths.work, name));
    }
  }

  async #put(
    source: FileSource | null,
    tenant: string,
    target: string,
  ): Promise<{ readonly path: string; readonly isHost: boolean }> {
    if (source?.kind === 'host') return await this.#putHost(source.path, target);
    await mkdir(target, { recursive: true, mode: 0o755 });
    if (source === null) return { path: target, isHost: false };
    const found = await this.#options.packages.find(tenant, source.name);
    if (!found) throw failedPrecondition(`package gcs://${source.name} was not uploaded, or is not kept any more`);
    await this.#unpack(found.path, target, `package gcs://${source.name}`);
    return { path: target, isHost: false };
  }

  async #putHost(path: string, target: string): Promise<{ readonly path: string; readonly isHost: boolean }> {
    const opened = await this.#openHost(path);
    try {
      // The sandbox checks the path again when it mounts it.
      if (opened.kind === 'directory') {
        if (!this.#options.takesHostDirectories) {
          throw failedPrecondition(
            `${path} is a directory of the server's machine, which jobs do not see: give an archive`,
          );
        }
        return { path, isHost: true };
      }
      await mkdir(target, { recursive: true, mode: 0o755 });
      // Unpacks the file that was opened and checked, even if its path has been replaced meanwhile.
      await this.#unpack(opened.link, target, path);
      return { path: await onlyDirectoryIn(target), isHost: false };
    } finally {
      await opened.close();
    }
  }

  /** Unpacks an archive. `name` is the caller's name of it, for errors: a job may have several. */
  async #unpack(archive: string, target: string, name: string): Promise<void> {
    try {
      await unpack(archive, target, this.#options.limits);
    } catch (error) {
      throw failedPrecondition(`${name}: ${messageOf(error)}`, { cause: error });
    }
  }

  async #openHost(path: string): Promise<OpenedPath> {
    const { openHostPath } = this.#options;
    if (openHostPath === null) {
      throw invalidRequest(
        `runtime_env names the path ${path} of the host, which this service does not allow (setting jobs.allowHostPaths)`,
      );
    }
    return await openHostPath(path);
  }
}

/**
 * Returns the only directory of an unpacked archive, or its root. Archives of a project usually contain one
 * directory.
 */
async function onlyDirectoryIn(directory: string): Promise<string> {
  const [first, second] = await readdir(directory, { withFileTypes: true });
  return first?.isDirectory() && second === undefined ? join(directory, first.name) : directory;
}
