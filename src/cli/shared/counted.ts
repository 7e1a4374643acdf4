/** Formats a count with its noun: `1 agent`, `2 agents`. */
export function counted(count: number, one: string, many: string): string {
  return `${count} ${count === 1 ? one : many}`;
}
