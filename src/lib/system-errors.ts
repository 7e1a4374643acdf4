/** No such file or process, or a path through something other than a directory. */
const ABSENT = new Set<unknown>(['ENOENT', 'ENOTDIR', 'ESRCH']);

/**
 * Returns true when an error of the operating system means that something does not exist. Other errors prove
 * nothing: without descriptors, or with a failing disk, existing files cannot be read either.
 */
export function isAbsent(error: unknown): boolean {
  return ABSENT.has((error as NodeJS.ErrnoException | null)?.code);
}

/** Returns true when a name could not be created because it exists. */
export function isTaken(error: unknown): boolean {
  return (error as NodeJS.ErrnoException | null)?.code === 'EEXIST';
}

const SHORTAGE = new Set<unknown>(['EMFILE', 'ENFILE', 'ENOMEM', 'ENOBUFS', 'EAGAIN']);

/**
 * Returns true when this process or machine lacked resources for the call, in the error or one of its causes.
 */
export function isShortage(error: unknown): boolean {
  for (let each = error; each instanceof Error; each = each.cause) {
    if (SHORTAGE.has((each as NodeJS.ErrnoException).code)) return true;
  }
  return false;
}

const FULL = new Set<unknown>(['ENOSPC', 'EDQUOT']);

/** Returns true when a write failed because the disk or its quota is full. */
export function isDiskFull(error: unknown): boolean {
  return FULL.has((error as NodeJS.ErrnoException | null)?.code);
}
