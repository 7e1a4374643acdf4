import { accessSync, constants, readFileSync } from 'node:fs';
import { join } from 'node:path';

/**
 * Returns the directory of the group that a process has in a controller's hierarchy of version 1. Null if
 * there is no such hierarchy, or this user may not make groups there.
 */
export function cgroupDirectory(controller: string, pid: number, proc = '/proc'): string | null {
  try {
    const group = groupOf(readFileSync(join(proc, String(pid), 'cgroup'), 'utf8'), controller);
    const mount = mountOf(readFileSync(join(proc, 'self/mountinfo'), 'utf8'), controller);
    if (group === null || mount === null) return null;
    const { point, root } = mount;
    // A container sees the hierarchy from its own group on.
    const isBelow = root !== '/' && (group === root || group.startsWith(`${root}/`));
    const inside = isBelow ? group.slice(root.length) : group;
    const directory = inside.startsWith('/..') ? point : join(point, inside);
    accessSync(join(directory, 'cgroup.procs'), constants.W_OK);
    accessSync(directory, constants.W_OK);
    return directory;
  } catch {
    return null;
  }
}

function groupOf(table: string, controller: string): string | null {
  for (const line of table.split('\n')) {
    const [, controllers = '', group] = /^\d+:([^:]*):(.*)$/.exec(line) ?? [];
    if (controllers.split(',').includes(controller) && group !== undefined) return group;
  }
  return null;
}

function mountOf(table: string, controller: string): { readonly point: string; readonly root: string } | null {
  for (const line of table.split('\n')) {
    const [left = '', right = ''] = line.split(' - ');
    const [, , , root, point] = left.split(' ');
    const [kind, , options = ''] = right.split(' ');
    const isIt = kind === 'cgroup' && options.split(',').includes(controller);
    if (isIt && root !== undefined && point !== undefined) return { point, root };
  }
  return null;
}
