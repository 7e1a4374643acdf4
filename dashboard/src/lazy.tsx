import { signal } from '@preact/signals';
import type { ComponentChildren, FunctionComponent } from 'preact';
import { useEffect } from 'preact/hooks';
import { Failure } from './parts.tsx';

/**
 * Returns a component whose file is loaded when it is first shown. `meanwhile` renders until then. Shows an
 * error if the file is missing, because the service was upgraded after the page was opened.
 */
export function lazy<P extends object>(
  load: () => Promise<{ readonly default: FunctionComponent<P> }>,
  meanwhile: (props: P) => ComponentChildren,
): FunctionComponent<P> {
  const loaded = signal<FunctionComponent<P> | null>(null);
  const isMissing = signal(false);
  return function Lazy(props: P) {
    useEffect(() => {
      if (loaded.value !== null) return;
      load().then(
        ({ default: component }) => {
          loaded.value = component;
          isMissing.value = false;
        },
        () => {
          isMissing.value = true;
        },
      );
    }, []);
    const Component = loaded.value;
    if (Component !== null) return <Component {...props} />;
    return isMissing.value ? <Failure text={MISSING} /> : meanwhile(props);
  };
}

const MISSING = 'This part of the page could not be loaded. Reload the page: the service may have been upgraded.';
