// Light and dark: as the system has it, unless the reader chose. Applied before the first paint, so that nothing flashes.

import { THEMES, type Store, type Theme } from "../state";

export type ThemeName = "light" | "dark";
const KEY = "fxdebug theme";
const dark = matchMedia("(prefers-color-scheme: dark)");

/** Set the theme that the reader chose last; called before anything is drawn. */
export function applyTheme(): Theme {
  const theme = remembered();
  mark(theme);
  return theme;
}

/** The theme that is shown now. */
export function themeOf(store: Store): ThemeName {
  const { theme } = store.get();
  return theme === "auto" ? (dark.matches ? "dark" : "light") : theme;
}

/** Apply and remember what the reader chooses. */
export function followTheme(store: Store): void {
  store.subscribe((now, before) => {
    if (now.theme === before.theme) return;
    mark(now.theme);
    remember(now.theme);
  });
}

/** Call a function whenever another theme is shown, by the reader's choice or by the system's. */
export function onTheme(store: Store, tell: (theme: ThemeName) => void): void {
  let shown = themeOf(store);
  const check = (): void => {
    if (themeOf(store) !== shown) tell((shown = themeOf(store)));
  };
  dark.addEventListener("change", check);
  store.subscribe(check);
}

function mark(theme: Theme): void {
  document.documentElement.dataset["theme"] = theme;
  document.documentElement.style.colorScheme = theme === "auto" ? "" : theme;
}

// Storage is refused in a notebook's sandboxed frame: then the choice lasts as long as the page.
function remembered(): Theme {
  try {
    const theme = localStorage.getItem(KEY) as Theme | null;
    return theme && THEMES.includes(theme) ? theme : "auto";
  } catch {
    return "auto";
  }
}

function remember(theme: Theme): void {
  try {
    localStorage.setItem(KEY, theme);
  } catch {
    // see above
  }
}
