/** No such file, no such process; a path through what is no directory. */
const ABSENT = new Set<unknown>(['ENOENT', 'ENOTDIR', 'ESRCH']);

/**
 * Whether an error of the operating system says that something is not there. Any other one says nothing about it: with too few
 * descriptors, or a disk that fails, what lives cannot be read either.
 */
export function isAbsent(error: unknown): boolean {
  return ABSENT.has((error as NodeJS.ErrnoException | null)?.code);
}

/** Whether it could not be made because something of that name is there already. */
export function isTaken(error: unknown): boolean {
  return (error as NodeJS.ErrnoException | null)?.code === 'EEXIST';
}

const SHORTAGE = new Set<unknown>(['EMFILE', 'ENFILE', 'ENOMEM', 'ENOBUFS', 'EAGAIN']);

/** Whether it was this process or this machine that had too little of something to ask at all. */
export function isShortage(error: unknown): boolean {
  for (let each = error; each instanceof Error; each = each.cause) {
    if (SHORTAGE.has((each as NodeJS.ErrnoException).code)) return true;
  }
  return false;
}

const FULL = new Set<unknown>(['ENOSPC', 'EDQUOT']);

/** Whether a file could not be written because its disk, or what one may have of it, is full. */
export function isDiskFull(error: unknown): boolean {
  return FULL.has((error as NodeJS.ErrnoException | null)?.code);
}
