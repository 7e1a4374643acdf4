/** One bar. `from` and `length` are parts of the whole width, 0 to 1. */
export interface Bar {
  readonly name: string;
  readonly from: number;
  readonly length: number;
  readonly text: string;
  readonly tone: string;
}

/** Bars under each other, between their names and their values, as wide as there is room. */
export function Bars({
  title,
  bars,
  label,
}: {
  readonly title?: string;
  readonly bars: readonly Bar[];
  readonly label: string;
}) {
  return (
    <figure>
      {title === undefined ? null : <figcaption>{title}</figcaption>}
      <div class="bars" role="img" aria-label={label}>
        {bars.map(bar => (
          <>
            <span>{bar.name}</span>
            <span class="track">
              <span
                class={`bar ${bar.tone}`}
                // The page's policy lets no style stand in it.
                ref={element => {
                  element?.style.setProperty('margin-left', `${bar.from * 100}%`);
                  element?.style.setProperty('width', `${bar.length * 100}%`);
                }}
              />
            </span>
            <span class="number">{bar.text}</span>
          </>
        ))}
      </div>
    </figure>
  );
}
