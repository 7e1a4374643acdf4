/**
 * A controller that aborts when `parent` does, with its reason. `unlink` lets go of the parent; until then the parent
 * holds it. (`AbortSignal.any` is never let go of on Node 20 while something listens.)
 */
export function linkedTo(parent: AbortSignal): { readonly controller: AbortController; readonly unlink: () => void } {
  const controller = new AbortController();
  const follow = () => controller.abort(parent.reason);
  if (parent.aborted) follow();
  else parent.addEventListener('abort', follow, { once: true });
  return { controller, unlink: () => parent.removeEventListener('abort', follow) };
}
