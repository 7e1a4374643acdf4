import { join } from 'node:path';
import type { MountSpec } from '../core/instance.ts';
import { realPathOf } from '../lib/path-lookup.ts';

/** Directory inside with stand-ins for programs that sandboxes lack. */
const TOOLS = '/opt/rookery/tools';
/** Directory in a container with programs of the platform, which start on request. */
export const PROGRAMS = '/opt/rookery/programs';
const HOME = '/home/user';

/** The parts of a sandbox that having a template decides, on the files of the host. */
export interface TemplateSandbox {
  /** Variables below those of the caller. */
  readonly env: Readonly<Record<string, string>>;
  readonly workingDir: string;
  readonly mounts: readonly MountSpec[];
}

/**
 * Returns the parts of a sandbox with a template. `path` is the PATH of sandboxes, `programsDir` the
 * directory of the platform's Python packages. Undefined: the sandbox gets no stand-ins.
 */
export function templateSandbox(path: string, programsDir: string | undefined): TemplateSandbox {
  const tools = programsDir && [toolsOf(programsDir)];
  return {
    env: {
      PATH: tools ? `${TOOLS}/bin:${path}:${TOOLS}/fallback` : path,
      ...{ HOME, USER: 'user', LOGNAME: 'user', SHELL: '/bin/bash' },
    },
    workingDir: HOME,
    mounts: tools || [],
  };
}

/**
 * Returns the mounts of a sandbox of an image with accounts: the stand-ins for programs that no image can
 * have there, and the code interpreter. `programsDir` as above.
 */
export function imageTools(programsDir: string | undefined): readonly MountSpec[] {
  if (programsDir === undefined) return [];
  const source = realPathOf(join(programsDir, 'rookery_interpreter'));
  return [toolsOf(programsDir), { source, target: `${PROGRAMS}/rookery_interpreter`, readonly: true }];
}

function toolsOf(programsDir: string): MountSpec {
  return { source: realPathOf(join(programsDir, 'rookery_sandbox')), target: TOOLS, readonly: true };
}

/** Returns the variables by which programs find out that they run in a sandbox, and in which. */
export function marksOf(template: string, instanceId: string): Readonly<Record<string, string>> {
  return { E2B_SANDBOX: 'true', E2B_SANDBOX_ID: instanceId.replaceAll('-', ''), E2B_TEMPLATE_ID: template };
}
